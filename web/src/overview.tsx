// Progress, processes, evaluations and snapshots at the chosen point.

import type { View } from "./api";
import { bytes, clock, number, seconds } from "./format";

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

export function Pods({ view }: { view: View }) {
  const pods = view.pods ?? [];
  return (
    <div class="scroll">
      <table>
        <caption class="hidden">Processes</caption>
        <thead><tr><th>process</th><th>phase</th><th>starts</th><th>tasks</th></tr></thead>
        <tbody>
          {pods.slice(0, 200).map((pod) => (
            <tr key={pod.name}>
              <td>{pod.name}</td>
              <td>{pod.pending ? `pending: ${pod.pending}` : pod.slow ? `slow: ${pod.slow}` : pod.phase}</td>
              <td>{pod.starts}</td><td>{pod.tasks.join(", ")}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {pods.length > 200 && <p class="quiet">200 of {pods.length} processes</p>}
    </div>
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
