// Progress, processes, evaluations and snapshots at the chosen point.

import { useState } from "preact/hooks";
import type { PodTable, View } from "./api";
import { bytes, clock, number, seconds } from "./format";
import { useAnswer } from "./hooks";
import { LongTable, useRowsInSight } from "./panel";

export function Overview({ view }: { view: View }) {
  const progress = view.progress;
  if (!progress) return <p>The log has no job until this event.</p>;
  const [done, planned] = progress.batches;
  const isValidation = progress.metrics_of.startsWith("validation");
  const facts: [string, string][] = [
    ["epoch", `${progress.epoch[0]} of ${progress.epoch[1]}`],
    ["batches", `${number(done)} of ${number(planned)}`],
    ["loss", number(progress.loss)],
    ...Object.entries(progress.metrics)
      .filter(([name]) => isValidation || name !== "loss")
      .map(([name, value]): [string, string] => [isValidation ? `val_${name}` : name, number(value)]),
    ["workers", `${progress.workers[0]} of ${progress.workers[1]}`],
    ["ps", `${progress.ps[0]} of ${progress.ps[1]}`],
    ["queue", `${progress.queue[0]} (${progress.queue[1]} in progress)`],
    ["elapsed", seconds(progress.elapsed_s)],
  ];
  return (
    <>
      <progress value={done} max={planned || 1} aria-label={`${done} of ${planned} batches`} />
      <dl class="facts">
        {facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
      </dl>
      {progress.metrics_of && <p class="quiet">Metrics: {progress.metrics_of}</p>}
      {view.message && <p class="problem">{view.message}</p>}
    </>
  );
}

const HEIGHT = 300;

export function Pods({ job, at }: { job: string; at: number }) {
  const [text, setText] = useState("");
  const [first, limit, scrolled] = useRowsInSight(HEIGHT);
  const [pods, problem] = useAnswer<PodTable>("pods", { job, at, text, from: first, limit });
  const rows = pods?.rows.map((pod) => [
    pod.name, pod.pending ? `pending: ${pod.pending}` : pod.slow ? `slow: ${pod.slow}` : pod.phase, pod.starts, pod.tasks.join(", "),
  ]);
  return (
    <>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>name <input type="search" value={text} placeholder="worker-1" onInput={(event) => setText(event.currentTarget.value)} /></label>
        {pods && <span class="quiet">{number(pods.count)} processes</span>}
      </form>
      {problem && <p class="problem" role="alert">{problem}</p>}
      {pods && <LongTable caption="List of processes" head={["process", "phase", "starts", "tasks"]} first={pods.from} count={pods.count} height={HEIGHT} scrolled={scrolled} rows={rows ?? []} />}
    </>
  );
}

export function Results({ view }: { view: View }) {
  const evaluations = view.evaluations ?? [], snapshots = view.snapshots ?? [];
  return (
    <div class="scroll">
      <table>
        <caption>Evaluations{evaluations.length ? "" : ": none yet"}</caption>
        <tbody>
          {[...evaluations].reverse().map((each) => (
            <tr key={each.evaluation}>
              <td>step {number(each.step)}{each.final ? " (last)" : ""}</td>
              <td>{Object.entries(each.metrics).map(([name, value]) => `${name} ${number(value)}`).join("  ")}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <table>
        <caption>Snapshots{snapshots.length ? "" : ": none yet"}</caption>
        <tbody>
          {snapshots.map((each) => (
            <tr key={each.ps}><td>{each.ps}</td><td>step {number(each.step)}</td><td>{clock(each.time_s)}</td><td class="num">{bytes(each.bytes)}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
