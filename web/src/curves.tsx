// Curves over time, up to the chosen point.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useContext, useEffect, useMemo, useRef } from "preact/hooks";
import type { CurvePoint, Curves as Facts } from "./api";
import { number } from "./format";
import { InSight } from "./hooks";

const DOTS_MAX = 80;
const COLORS = ["#1f6feb", "#d1680a", "#2c974b", "#8250df"];

interface Curve { name: string; points: CurvePoint[]; count: number; color: string; dash: number[]; from_s: number }
interface Chart { title: string; curves: Curve[] }
/** The curves of a job, and when it began; ``name`` tells it from others in the same charts. */
export interface Source { name: string; facts: Facts; from_s: number }

/** One chart for each quantity: that of training and that of validation are in the same one, and those of all jobs. */
function charts(sources: Source[]): Chart[] {
  const found = new Map<string, Chart>();
  for (const [place, { name: job, facts, from_s }] of sources.entries()) for (const [name, points] of Object.entries(facts.points)) {
    const [run, tag] = name.split("/") as [string, string];
    const title = tag.replace(/^epoch_/, "").replace(/^evaluation_(.*)_vs_iterations$/, "$1");
    if (tag.startsWith("epoch_") && run === "validation") continue;  // The evaluations are finer.
    const chart = found.get(title) ?? { title, curves: [] };
    const isSingle = sources.length < 2, isSecond = run === "validation";
    chart.curves.push({
      name: isSingle ? run : run === "train" ? job : `${job} ${run}`, points, count: facts.counts[name] ?? points.length, from_s,
      color: COLORS[isSingle ? chart.curves.length % COLORS.length : place]!, dash: !isSingle && isSecond ? [4, 3] : [],
    });
    found.set(title, chart);
  }
  const order = ["loss", "records_per_second", "workers", "staleness", "goodput"];
  const place = (title: string) => (order.indexOf(title) + 1 || order.length + 1);
  return [...found.values()].sort((a, b) => place(a.title) - place(b.title) || a.title.localeCompare(b.title));
}

/** How many points are known at an event. */
function until(points: CurvePoint[], at: number): number {
  let low = 0, high = points.length;
  while (low < high) { const middle = (low + high) >> 1; if (points[middle]![0] <= at) low = middle + 1; else high = middle; }
  return low;
}

/** Charts up to an event; ``bySteps``: against batches (or epochs), not time; ``stepped``: values last until the next one. */
export function Curves({ sources, at, bySteps = false, stepped = false }: { sources: Source[]; at: number; bySteps?: boolean; stepped?: boolean }) {
  const all = useMemo(() => charts(sources), sources.flatMap((each) => [each.facts, each.name, each.from_s]));
  if (!all.length) return <p>No curve has a point yet.</p>;
  return <div class="charts">{all.map((chart) => <Plot key={chart.title} chart={chart} at={at} bySteps={bySteps} stepped={stepped} />)}</div>;
}

function Plot({ chart, at, bySteps, stepped }: { chart: Chart; at: number; bySteps: boolean; stepped: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const seen = useContext(InSight);
  const shown = chart.curves.map((curve) => curve.points.slice(0, until(curve.points, at)));
  const last = shown.map((points) => points[points.length - 1]?.[3] ?? null);
  const names = chart.curves.map((curve) => curve.name).join();
  useEffect(() => {
    if (!place.current) return;
    const style = getComputedStyle(place.current);
    const axis = { stroke: style.color, grid: { stroke: style.borderTopColor, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const made = new uPlot({
      width: Math.max(200, place.current.clientWidth), height: 150, legend: { show: false }, cursor: { y: false },
      scales: { x: { time: false } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => bySteps ? (Number.isInteger(tick) ? String(tick) : "") : `${tick} s`), size: 24 }, { ...axis, size: 48 }],
      series: [{}, ...chart.curves.map((curve) => ({ label: curve.name, stroke: curve.color, dash: curve.dash, width: 1.5, spanGaps: true, ...(stepped ? { paths: uPlot.paths.stepped!({ align: 1 }), points: { show: false } } : { points: { show: (self: uPlot) => self.data[0].length < DOTS_MAX, size: 4 } }) }))],
    }, [[], ...chart.curves.map(() => [])] as unknown as uPlot.AlignedData, place.current);
    plot.current = made;
    const watch = new ResizeObserver(() => place.current && made.setSize({ width: Math.max(200, place.current.clientWidth), height: 150 }));
    watch.observe(place.current);
    return () => { watch.disconnect(); made.destroy(); plot.current = null; };
  }, [names, bySteps]);
  const counts = shown.map((points) => points.length).join();
  useEffect(() => {
    if (!seen) return;
    const tables = shown.map((points, index) => [
      points.map((point) => bySteps ? point[1] : point[2] - chart.curves[index]!.from_s), points.map((point) => point[3]),
    ] as uPlot.AlignedData);
    plot.current?.setData(tables.length > 1 ? uPlot.join(tables) : (tables[0] ?? [[], []]));
  }, [chart, counts, names, bySteps, seen]);
  const sampled = chart.curves.filter((curve) => curve.points.length < curve.count);
  return (
    <figure>
      <figcaption>
        {chart.title}
        {chart.curves.map((curve, index) => (
          <span key={curve.name} style={{ color: `color-mix(in srgb, ${curve.color} 55%, currentColor)` }}> {chart.curves.length > 1 ? `${curve.name} ` : ""}{number(last[index] ?? null)}</span>
        ))}
        {sampled.map((curve) => <span key={curve.name} class="quiet"> {curve.points.length} of {curve.count} points</span>)}
      </figcaption>
      <div ref={place} class="plot" role="img" aria-label={`${chart.title}: ${chart.curves.map((curve, index) => `${curve.name} ${number(last[index] ?? null)}`).join(", ")}`} />
    </figure>
  );
}
