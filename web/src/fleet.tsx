// A cluster that jobs share, at one decision of its controller: how it is used, who waits and why, what was decided.

import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Curves as CurveFacts, Fleet as Facts } from "./api";
import { Curves } from "./curves";
import { bytes, clock, number, seconds } from "./format";
import { useAnswer, useStream } from "./hooks";
import { Panel } from "./panel";
import { Slider } from "./slider";

const SIMULATED_S_MAX = 1e8;

/** A time; those of simulations begin at 0. */
function when(time_s: number): string { return time_s < SIMULATED_S_MAX ? `${time_s.toFixed(1)} s` : clock(time_s); }

function amount(resource: string, value: number): string {
  if (resource === "cpu") return `${(Math.round(value) / 1000).toLocaleString("en-US")} cores`;
  return resource === "memory" ? bytes(value * 2 ** 20) : number(Math.round(value * 10) / 10);
}

type Open = ((job: string) => void) | null;

export function Fleet({ at, go, home, open }: { at: number | null; go: (at: number | null) => void; home: () => void; open: Open }) {
  const stream = useStream({ fleet: "1" });
  const read = stream?.read ?? 0, point = at === null ? read : Math.min(at, read || at);
  const [facts, problem] = useAnswer<Facts>("fleet", { at: point || undefined }, read > 0);
  const [curves] = useAnswer<CurveFacts>("fleet/curves", { read }, read > 0);
  const latest = useRef(read);
  latest.current = read;
  const goTo = (next: number) => go(next >= latest.current ? null : Math.max(1, next));
  useEffect(() => { document.title = "Fleet · ElasticDL"; }, []);
  const first_s = stream?.first_s ?? 0;
  const panels = useMemo(() => facts && (
    <main>
      <Panel title="Resources"><Resources facts={facts} /></Panel>
      <Panel title="Utilisation and jobs">
        {curves && <Curves sources={[{ name: "fleet", facts: curves, from_s: first_s }]} at={facts.number} stepped />}
        <p class="quiet">Useful work: CPU of workers that train, each counted by what it adds to its job's throughput compared with the first one.</p>
      </Panel>
      <Panel title="Jobs" wide><FleetJobs facts={facts} open={open} /></Panel>
      <Panel title="Last decisions" wide><Decisions facts={facts} goTo={goTo} /></Panel>
      <Panel title="Nodes" wide><Nodes facts={facts} /></Panel>
    </main>
  ), [facts, curves, first_s]);
  return (
    <>
      <header>
        <button onClick={home}>All jobs</button>
        <h1>Fleet</h1>
        <span class="quiet" role="status">{at === null ? "live" : "replay"}{facts ? `: ${facts.node_count} nodes, ${facts.pod_count} pods, ${facts.job_count} jobs` : ""}</span>
        {stream?.problem && <span class="problem" role="alert">{stream.problem}</span>}
      </header>
      <Slider at={at} point={point} read={read} label="Decision" end="Live" goTo={goTo} go={go} text={facts ? `decision ${facts.number}, ${when(facts.time_s)}` : ""}>
        {facts && <p class="event"><strong data-seq={facts.number}>#{facts.number}</strong> {when(facts.time_s)} (+{seconds(Math.max(0, facts.time_s - first_s))})</p>}
      </Slider>
      {problem && <p class="problem" role="alert">{problem}</p>}
      {!facts && !problem && <p role="status">{stream ? "The log has no decision yet." : "Reading the log…"}</p>}
      {panels}
    </>
  );
}

function Resources({ facts }: { facts: Facts }) {
  return (
    <table>
      <caption class="hidden">Resources</caption>
      <thead><tr>{["resource", "all nodes", "jobs", "others", "useful work", "requested"].map((each) => <th key={each} scope="col">{each}</th>)}</tr></thead>
      <tbody>
        {facts.resources.map(([name, all, jobs, others, useful]) => (
          <tr key={name}>
            <th scope="row">{name}</th><td>{amount(name, all)}</td><td>{amount(name, jobs)}</td><td>{amount(name, others)}</td><td>{amount(name, useful)}</td>
            <td><Used used={jobs + others} all={all} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A bar with its percentage. */
function Used({ used, all }: { used: number; all: number }) {
  const percent = all ? Math.round((100 * used) / all) : 0;
  return <span class="used"><meter min={0} max={100} value={percent} aria-hidden="true" /> {percent}%</span>;
}

function state(job: Facts["jobs"][number]): string {
  if (job.finished) return "finished";
  if (job.suspended) return "suspended";
  return job.waiting ? "waiting" : "has a place";
}

function FleetJobs({ facts, open }: { facts: Facts; open: Open }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Jobs">
      <table class="reasons">
        <caption class="hidden">Jobs, those that wait first</caption>
        <thead><tr>{["job", "state", "priority", "queue", "workers", "ps", "remaining", "reason"].map((each) => <th key={each} scope="col">{each}</th>)}</tr></thead>
        <tbody>
          {facts.jobs.map((job) => (
            <tr key={job.job} class={job.waiting ? "waits" : ""}>
              <td>{open ? <button class="link" onClick={() => open(job.job)}>{job.job}</button> : job.job}</td><td>{state(job)}</td><td>{job.priority}</td><td>{job.queue}</td>
              <td>{job.workers[0]} of {job.workers[1]}</td><td>{job.ps[0]} of {job.ps[1]}</td>
              <td>{job.remaining_s === null ? "" : seconds(job.remaining_s)}</td><td>{job.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {!facts.jobs.length && <p class="quiet">There are no jobs at this point.</p>}
      {facts.job_count > facts.jobs.length && <p class="quiet">{facts.jobs.length} of {facts.job_count} jobs</p>}
    </div>
  );
}

function Decisions({ facts, goTo }: { facts: Facts; goTo: (number: number) => void }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Last decisions">
      <table class="reasons">
        <caption class="hidden">Decisions, the latest first</caption>
        <tbody>
          {facts.decisions.map((each, index) => (
            <tr key={`${each.number} ${each.job} ${index}`}>
              <td><button class="link" onClick={() => goTo(each.number)} aria-label={`Go to decision ${each.number}`}>#{each.number}</button></td>
              <td>{when(each.time_s)}</td><td>{each.job}</td><td>{each.what}</td><td>{each.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {facts.decision_count > facts.decisions.length && <p class="quiet">The latest {facts.decisions.length} of {facts.decision_count}</p>}
    </div>
  );
}

function Nodes({ facts }: { facts: Facts }) {
  const names = [...new Set(facts.nodes.flatMap((node) => node.used.map(([name]) => name)))].sort();
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Nodes">
      <table>
        <caption class="hidden">Nodes</caption>
        <thead><tr>{["node", "pods", ...names].map((each) => <th key={each} scope="col">{each}</th>)}</tr></thead>
        <tbody>
          {facts.nodes.map((node) => (
            <tr key={node.name}>
              <td>{node.name}</td><td>{node.pods}</td>
              {names.map((name) => { const found = node.used.find(([each]) => each === name); return <td key={name}>{found && <Used used={found[1]} all={found[2]} />}</td>; })}
            </tr>
          ))}
        </tbody>
      </table>
      {facts.node_count > facts.nodes.length && <p class="quiet">{facts.nodes.length} of {facts.node_count} nodes</p>}
    </div>
  );
}
