// When each process lived and what it did. Only the rows in sight are drawn, so that thousands are no problem.

import { useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Mark, Span, Timeline as Facts } from "./api";
import { clock, seconds } from "./format";
import { InSight } from "./hooks";
import type { Scale } from "./scale";

const ROW = 20, NAMES = 90, HEIGHT_MAX = 320;
const MARK = "#8250df", RING: Record<string, string> = { odd: "#2c974b", even: "#74c991" };
const COLORS: Record<string, string> = { pending: "#bf8700", starting: "#8c959f", running: "#9cc7f5", work: "#1f6feb", away: "#cf222e", ended: "#8c959f55" };

interface Props { facts: Facts; scale: Scale; at: number; time_s: number; first_s: number; last_s: number; go: (seq: number) => void }

interface Line { name: string; spans: Span[]; marks: Mark[] }

/** What each row shows, in the order of the log, and all losses. */
function ordered(facts: Facts): { lines: Line[]; away: Span[] } {
  const found = new Map<string, Line>(facts.processes.map(({ name }) => [name, { name, spans: [], marks: [] }]));
  for (const span of facts.spans) found.get(span[0])?.spans.push(span);
  const lines = [...found.values()], evaluations: Line = { name: "evaluations", spans: [], marks: [] };
  for (const mark of facts.marks) (found.get(mark[1]) ?? evaluations).marks.push(mark);
  if (evaluations.marks.length) lines.unshift(evaluations);
  const spans = facts.generations.map(([seq, time_s, number, members, reason], index): Span => {
    const next = facts.generations[index + 1];
    return ["ring", number % 2 ? "odd" : "even", time_s, next?.[1] ?? 0, seq, next?.[0] ?? 0, `generation ${number}: ${members.join(", ")} (${reason})`];
  });
  if (spans.length) lines.unshift({ name: "ring", spans, marks: [] });
  return { lines, away: facts.spans.filter((span) => span[1] === "away") };
}

export function Timeline({ facts, scale, at, time_s, first_s, last_s, go }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [top, setTop] = useState(0);
  const [width, setWidth] = useState(600);
  const [zoom, setZoom] = useState<[number, number] | null>(null);
  const [under, setUnder] = useState("");
  const drag = useRef<number | null>(null);
  const seen = useContext(InSight);
  const [from_s, to_s] = zoom ?? [first_s, Math.max(last_s, first_s + 1)];
  const { lines, away } = useMemo(() => ordered(facts), [facts]);
  const height = Math.min(HEIGHT_MAX, Math.max(ROW, lines.length * ROW));
  const from = scale.place(from_s), to = scale.place(to_s);
  const x = (time_s: number) => NAMES + ((scale.place(time_s) - from) / (to - from)) * (width - NAMES);
  const time = (left: number) => scale.time(from + (Math.max(0, left - NAMES) / (width - NAMES)) * (to - from));
  const zoomTo = (start_s: number, end_s: number) => setZoom(end_s - start_s >= last_s - first_s ? null : [start_s, end_s]);
  /** Zoom around the chosen point, and back. */
  const onKey = (event: KeyboardEvent) => {
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (factor) zoomTo(Math.max(first_s, time_s - factor * (time_s - from_s)), Math.min(last_s, time_s + factor * (to_s - time_s)));
    else if (event.key === "0" || event.key === "Escape") setZoom(null);
    else return;
    event.preventDefault();
  };

  useEffect(() => {
    const element = canvas.current?.parentElement?.parentElement;
    if (!element) return;
    const watch = new ResizeObserver(() => setWidth(Math.max(300, element.clientWidth - 20)));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const element = canvas.current, pen = element?.getContext("2d");
    if (!seen || !element || !pen) return;
    const dots = devicePixelRatio || 1;
    if (element.width !== width * dots) element.width = width * dots;
    if (element.height !== height * dots) element.height = height * dots;
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui";
    const color = getComputedStyle(element).color;
    const first = Math.floor(top / ROW), last = Math.min(lines.length, Math.ceil((top + height) / ROW));
    for (let row = first; row < last; row++) {
      const y = row * ROW - top;
      pen.fillStyle = color;
      pen.fillText(lines[row]!.name, 0, y + 14, NAMES - 6);
      for (const [, kind, start_s, end_s, start_seq] of lines[row]!.spans) {
        if (start_seq > at || start_s > to_s || (end_s && end_s < from_s)) continue;
        const left = Math.max(NAMES, x(start_s)), right = Math.min(width, x(Math.min(end_s || time_s, time_s)));
        pen.fillStyle = COLORS[kind] ?? RING[kind] ?? "gray";
        if (kind === "work") pen.fillRect(left, y + 6, Math.max(1, right - left - 1), ROW - 10);
        else pen.fillRect(left, y + 3, Math.max(1, right - left), ROW - 5);
      }
      pen.fillStyle = MARK;
      for (const [, , when, seq] of lines[row]!.marks) {
        if (seq > at || when < from_s || when > to_s) continue;
        pen.beginPath();
        pen.moveTo(x(when), y + 3);
        pen.lineTo(x(when) + 4, y + 10);
        pen.lineTo(x(when), y + 17);
        pen.lineTo(x(when) - 4, y + 10);
        pen.fill();
      }
    }
    pen.fillStyle = color;
    for (const gap of scale.gaps) {
      const left = x(gap.start_s), right = x(gap.end_s);
      if (right < NAMES || left > width || left < NAMES) continue;
      pen.globalAlpha = 0.12;
      pen.fillRect(left, 0, right - left, height);
      pen.globalAlpha = 1;
    }
    pen.fillStyle = "#cf222e";
    if (time_s >= from_s && time_s <= to_s) pen.fillRect(x(time_s), 0, 1.5, height);
  });

  /** The mark or span at a place: its text, and the event to go to. */
  const find = (event: MouseEvent): [text: string, seq: number] | undefined => {
    const line = lines[Math.floor((event.offsetY + top) / ROW)], when = time(event.offsetX);
    const mark = line?.marks.find(([, , time_s, seq]) => seq <= at && Math.abs(x(time_s) - event.offsetX) < 5);
    if (mark) return [`${mark[1]} ${mark[0]} ${mark[4]} ${clock(mark[2])}`, mark[3]];
    let found: Span | undefined;
    for (const span of line?.spans ?? []) if (span[4] <= at && span[2] <= when && (!span[3] || span[3] >= when)) found = span;
    if (!found) return undefined;
    const [process, kind, start_s, end_s, start_seq, end_seq, text] = found;
    return [`${process} ${kind in RING ? "" : kind} ${text} ${clock(start_s)}, ${seconds((end_s || time_s) - start_s)}`, kind in RING ? start_seq : end_seq || start_seq];
  };
  const shownSnapshots = useMemo(() => facts.marks.filter((mark) => mark[0] === "snapshot").length, [facts]);
  const exits = away.filter((span) => span[4] <= at);
  const summary = `${facts.processes.length} processes, ${exits.length} exits${exits.length ? `: ${exits.slice(0, 20).map((span) => `${span[0]} ${span[6]}`).join(", ")}` : ""}`;
  return (
    <>
      <div class="timeline" onScroll={(event) => setTop(event.currentTarget.scrollTop)} style={{ maxHeight: `${HEIGHT_MAX}px` }} tabIndex={0} role="region" aria-label="Timeline of processes" onKeyDown={onKey}>
        <div style={{ height: `${lines.length * ROW}px` }}>
          <canvas ref={canvas} role="img" aria-label={summary} style={{ width: `${width}px`, height: `${height}px` }}
            onMouseDown={(event) => { drag.current = time(event.offsetX); }}
            onMouseUp={(event) => {
              const start = drag.current, end = time(event.offsetX);
              drag.current = null;
              if (start !== null && Math.abs(x(end) - x(start)) > 8) zoomTo(Math.min(start, end), Math.max(start, end));
              else { const found = find(event); if (found) go(found[1]); }
            }}
            onMouseMove={(event) => setUnder(find(event)?.[0] ?? "")}
          />
        </div>
      </div>
      <p class="quiet">
        <span class="keys">{Object.entries(COLORS).map(([kind, color]) => <span key={kind}><i class="key" style={{ background: color }} />{kind}</span>)}</span>
        {facts.marks.length > 0 && <span class="keys"><i class="key" style={{ background: MARK }} />evaluation or snapshot</span>}
        {shownSnapshots < facts.snapshots && `${shownSnapshots} of ${facts.snapshots} snapshots. `}
        {scale.gaps.length > 0 && `Shaded, not to scale: ${scale.gaps.map((gap) => seconds(gap.end_s - gap.start_s)).join(", ")} without any process. `}
        {zoom ? <button class="link" onClick={() => setZoom(null)}>whole job</button> : "Drag or press + to zoom, click to go there. "}
        {facts.left_out > 0 && `${facts.left_out} later spans of work are not drawn. `}
        {under}
      </p>
    </>
  );
}
