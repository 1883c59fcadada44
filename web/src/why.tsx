// Where the time until the chosen point went.

import type { Why as Facts } from "./api";
import { seconds } from "./format";
import { useAnswer } from "./hooks";

export function Why({ job, at, go }: { job: string; at: number; go: (seq: number) => void }) {
  const [why, problem] = useAnswer<Facts>("why", { job, at });
  if (!why) return problem ? <p class="problem" role="alert">{problem}</p> : null;
  const least = why.wall_s / 200;
  const small = why.parts.filter((part) => part.seconds < least);
  return (
    <>
      <p>
        {seconds(why.wall_s)}, of which {seconds(why.useful_s)} useful
        {why.wall_s > 0 && ` (${Math.round((100 * why.useful_s) / why.wall_s)}%)`}
      </p>
      <ul class="parts">
        {why.parts.filter((part) => part.seconds >= least).map((part) => (
          <li key={part.cause}>
            <div class={`bar ${part.useful ? "useful" : "lost"}`} style={{ width: `${Math.max(0.3, part.percent)}%` }} aria-hidden="true" />
            <span class="num">{part.percent.toFixed(1)}%</span> <span class="num">{seconds(part.seconds)}</span> {part.title}
            {part.evidence.map((each) => (
              <button key={each.seq} class="link" onClick={() => go(each.seq)} title={`${seconds(each.seconds)}: go to event ${each.seq}`}>#{each.seq}</button>
            ))}
            {!part.useful && part.advice && part.percent >= 3 && <div class="quiet">{part.advice}</div>}
          </li>
        ))}
      </ul>
      {small.length > 0 && <p class="quiet">Under 0.5% each: {small.map((part) => part.title).join(", ")}</p>}
    </>
  );
}
