// Where the parts of the model were: which ps held which partitions over time, or the generations of the ring.

import type { Generation, PlacementSince, Timeline } from "./api";
import { clock, seconds } from "./format";
import type { Scale } from "./scale";

const PARTITIONS = 256, HEIGHT = 96, SHOWN = 50;
const COLORS = ["#1f6feb", "#d1680a", "#2c974b", "#8250df", "#bf3989", "#1b7c83", "#9a6700", "#6e7781"];

interface Props { facts: Timeline; scale: Scale; at: number; time_s: number; first_s: number; last_s: number; go: (seq: number) => void }

function color(ps: number): string { return COLORS[ps % COLORS.length]!; }

function text(runs: PlacementSince[3]): string {
  const found = new Map<number, string[]>();
  for (const [start, end, ps] of runs) found.set(ps, [...(found.get(ps) ?? []), end - start > 1 ? `${start}-${end - 1}` : `${start}`]);
  return [...found].sort(([one], [other]) => one - other).map(([ps, ranges]) => `ps-${ps}: ${ranges.join(", ")}`).join("; ");
}

/** The partitions from top to bottom, time from left to right, and a color for each ps. */
export function Placement({ facts, scale, at, time_s, first_s, last_s, go }: Props) {
  const known = facts.placements.filter((each) => each[0] <= at);
  const now = known[known.length - 1];
  if (!now) return <p class="quiet">The log has no job until this event.</p>;
  const from = scale.place(first_s), length = Math.max(1, scale.place(last_s) - from), holders = [...new Set(known.flatMap((each) => each[3].map((run) => run[2])))].sort((a, b) => a - b);
  const last = <p>Version {now[2]} since <button class="link" onClick={() => go(now[0])}>#{now[0]}</button> {clock(now[1])}: {text(now[3])}</p>;
  if (facts.placements.length < 2) return last;
  return (
    <>
      <svg class="placement" viewBox={`0 0 1000 ${PARTITIONS}`} preserveAspectRatio="none" height={HEIGHT} role="img" aria-label={`Version ${now[2]}: ${text(now[3])}`}>
        {known.map(([seq, since_s, version, runs], index) => {
          const until_s = known[index + 1]?.[1] ?? Math.max(time_s, since_s);
          return (
            <g key={seq} onClick={() => go(seq)}>
              <title>{`Version ${version}, ${clock(since_s)}, ${seconds(until_s - since_s)}. ${text(runs)}`}</title>
              {runs.map(([start, end, ps]) => (
                <rect key={start} x={(1000 * (scale.place(since_s) - from)) / length} width={Math.max(1, (1000 * (scale.place(until_s) - scale.place(since_s))) / length)} y={start} height={end - start} fill={color(ps)} />
              ))}
            </g>
          );
        })}
      </svg>
      <p class="quiet">
        <span class="keys">{holders.map((ps) => <span key={ps}><i class="key" style={{ background: color(ps) }} />ps-{ps}</span>)}</span>
        Partitions 0 to {PARTITIONS - 1} from top to bottom.
      </p>
      {last}
    </>
  );
}

export function Generations({ facts, at, go }: { facts: Timeline; at: number; go: (seq: number) => void }) {
  const known = facts.generations.filter((each) => each[0] <= at).reverse();
  const took = (index: number, each: Generation) => (index ? seconds(known[index - 1]![1] - each[1]) : "present");
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Generations of the ring">
      <table>
        <caption class="hidden">Generations of the ring, the latest first</caption>
        <thead><tr>{["generation", "since", "lasted", "members, the leader first", "reason"].map((each) => <th key={each} scope="col">{each}</th>)}</tr></thead>
        <tbody>
          {known.slice(0, SHOWN).map((each, index) => (
            <tr key={each[0]}>
              <td>{each[2]}</td><td><button class="link" onClick={() => go(each[0])}>#{each[0]}</button> {clock(each[1])}</td>
              <td>{took(index, each)}</td><td>{each[3].join(", ")}</td><td>{each[4]}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {known.length > SHOWN && <p class="quiet">{SHOWN} of {known.length} generations</p>}
      {!known.length && <p class="quiet">No ring was formed until this event.</p>}
    </div>
  );
}
