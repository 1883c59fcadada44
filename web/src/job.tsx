// One job: the slider over its log, and the panels at the chosen point.

import { useEffect, useMemo, useRef } from "preact/hooks";
import { type Curves as CurveFacts, type Timeline as TimelineFacts, type View } from "./api";
import { Curves } from "./curves";
import { clock, seconds } from "./format";
import { Following, useAnswer, useStream } from "./hooks";
import { Overview, Pods, Results } from "./overview";
import { Panel } from "./panel";
import { Generations, Placement } from "./placement";
import { Scale } from "./scale";
import { Slider } from "./slider";
import { Events, Tasks } from "./tables";
import { Timeline } from "./timeline";
import { Why } from "./why";

const READING_STEPS = 10;

interface Props { job: string; at: number | null; go: (at: number | null) => void; home: (() => void) | null }

export function Job({ job, at, go, home }: Props) {
  const stream = useStream({ job });
  const read = stream?.read ?? 0;
  // Panels cost as much for each request as reading thousands of events: until the log is read they are drawn seldom.
  const isReading = read < (stream?.total ?? 0);
  const followed = useRef(0);
  if (!isReading || !followed.current || read - followed.current >= (stream?.total ?? 0) / READING_STEPS) followed.current = read;
  const point = at === null ? followed.current : Math.min(at, read || at);
  const isReady = read > 0 && (at === null || at <= read || !stream?.live);
  const [view, problem] = useAnswer<View>("view", { job, at: point || undefined }, isReady);
  // Curves and timeline come as a whole, so while the log grows they come again for each hundredth of it.
  const step = Math.max(1, Math.floor(read / 100));
  const drawn = isReading ? followed.current : stream?.live ? Math.max(1, read - (read % step)) : read;
  const [curves] = useAnswer<CurveFacts>("curves", { job, read: drawn }, read > 0);
  const [timeline] = useAnswer<TimelineFacts>("timeline", { job, read: drawn }, read > 0);
  const latest = useRef(read);
  latest.current = read;
  useEffect(() => { document.title = `${stream?.job ?? job} · ElasticDL`; }, [stream?.job, job]);

  const goTo = (seq: number) => go(seq >= latest.current ? null : Math.max(1, seq));
  const isPast = at !== null;
  const first_s = stream?.first_s ?? 0, last_s = stream?.last_s ?? 0;
  const scale = useMemo(() => new Scale(timeline?.spans ?? [], first_s, last_s), [timeline, first_s, last_s]);
  // Panels are asked and drawn once the view has come, not for each place that the slider passes.
  const panels = useMemo(() => view && (
    <main>
      <Panel title="Progress"><Overview view={view} /></Panel>
      <Panel title="Where the time went"><Why job={job} at={view.seq} go={goTo} /></Panel>
      <Panel title="Timeline" wide>
        {timeline && <Timeline facts={timeline} scale={scale} at={view.seq} time_s={view.time_s} first_s={first_s} last_s={last_s} go={goTo} />}
      </Panel>
      {timeline && timeline.generations.length > 0 && <Panel title="Ring" wide><Generations facts={timeline} at={view.seq} go={goTo} /></Panel>}
      {timeline && timeline.placements.length > 0 && <Panel title="Placement of the model" wide>
        <Placement facts={timeline} scale={scale} at={view.seq} time_s={view.time_s} first_s={first_s} last_s={last_s} go={goTo} />
      </Panel>}
      <Panel title="Curves" wide>{curves && <Curves sources={[{ name: job, facts: curves, from_s: first_s }]} at={view.seq} />}</Panel>
      <Panel title="Processes"><Pods job={job} at={view.seq} /></Panel>
      <Panel title="Evaluations and snapshots"><Results view={view} /></Panel>
      <Panel title="Events" wide><Events job={job} at={view.seq} go={goTo} /></Panel>
      <Panel title="Tasks" wide><Tasks job={job} at={view.seq} go={goTo} /></Panel>
    </main>
  ), [job, view, timeline, curves, first_s, last_s]);
  return (
    <>
      <header>
        {home && <button onClick={home}>All jobs</button>}
        <h1>{stream?.job ?? job}</h1>
        {view && <span class={`state ${view.state}`}>{view.state}</span>}
        {stream && <span class="quiet" role="status">{isPast ? "replay" : stream.live ? "live" : "ended log"}{read < stream.total ? `, read ${read} of ${stream.total} events` : ""}</span>}
        {stream?.problem && <span class="problem" role="alert">{stream.problem}</span>}
      </header>
      <Slider at={at} point={point} read={read} label="Event" end={stream?.live ? "Live" : "End"} goTo={goTo} go={go} text={view ? `event ${view.seq}, ${clock(view.time_s)}` : ""}>
        {view && <p class="event" aria-live="off"><strong data-seq={view.seq}>#{view.seq}</strong> {clock(view.time_s)} (+{seconds(Math.max(0, view.time_s - first_s))}) {view.event}</p>}
      </Slider>
      {problem && <p class="problem" role="alert">{problem}</p>}
      {!view && !problem && <p role="status">Reading the event log…</p>}
      <Following.Provider value={at === null && !!stream?.live && !isReading}>{panels}</Following.Provider>
    </>
  );
}
