// The tables of tasks and of events, with filters.

import { useState } from "preact/hooks";
import type { EventRow, Story as StoryFacts, TaskTable } from "./api";
import { clock } from "./format";
import { useAnswer } from "./hooks";

interface Props { job: string; at: number; go: (seq: number) => void }

const EVENTS = 60, EVENTS_MAX = 1000;
const STATES = ["finished", "running", "dispatched", "requeued", "pending", "failed"];

export function Tasks({ job, at, go }: Props) {
  const [state, setState] = useState("");
  const [epoch, setEpoch] = useState("");
  const [worker, setWorker] = useState("");
  const [slowest, setSlowest] = useState(false);
  const [chosen, setChosen] = useState(-1);
  const [table, problem] = useAnswer<TaskTable>("tasks", { job, at, state, epoch, worker, slowest: slowest ? 50 : undefined });
  const counts = table?.counts ?? {};
  return (
    <>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>state <select value={state} onChange={(event) => setState(event.currentTarget.value)}>
          <option value="">{counts["finished"] === counts["all"] ? "all" : "not finished"}</option>
          {STATES.map((each) => <option key={each}>{each}</option>)}
        </select></label>
        <label>epoch <input type="number" min="1" value={epoch} onInput={(event) => setEpoch(event.currentTarget.value)} /></label>
        <label>worker <input value={worker} placeholder="worker-0" onInput={(event) => setWorker(event.currentTarget.value.trim())} /></label>
        <label><input type="checkbox" checked={slowest} onChange={(event) => setSlowest(event.currentTarget.checked)} /> slowest first</label>
        <span class="quiet">{Object.entries(counts).map(([name, count]) => `${count} ${name}`).join(", ")}</span>
      </form>
      {problem && <p class="problem" role="alert">{problem}</p>}
      <div class="scroll">
        <table>
          <caption class="hidden">Tasks</caption>
          <thead><tr>{table?.columns.map((each) => <th key={each} scope="col">{each}</th>)}</tr></thead>
          <tbody>
            {table?.rows.map((row) => (
              <tr key={row[0]}>
                {row.map((each, index) => <td key={index}>{index ? each : <button class="link" onClick={() => setChosen(Number(each))} aria-label={`Story of task ${each}`}>{each}</button>}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
        {table && !table.rows.length && <p class="quiet">No task is like that.</p>}
        {table?.more && <p class="quiet">The first {table.rows.length}.</p>}
      </div>
      {chosen >= 0 && <Story job={job} at={at} number={chosen} go={go} close={() => setChosen(-1)} />}
    </>
  );
}

function Story({ job, at, number, go, close }: Props & { number: number; close: () => void }) {
  const [story] = useAnswer<StoryFacts>("task", { job, at, number });
  return (
    <section class="story" aria-label={`Story of task ${number}`}>
      <h3>Task {number} <button class="link" onClick={close}>close</button></h3>
      <ol>
        {story?.history.map((each, index) => (
          <li key={index}><button class="link" onClick={() => go(each.seq)}>#{each.seq}</button> {clock(each.time_s)} {each.name}: {each.text}</li>
        ))}
      </ol>
      {story && !story.history.length && <p class="quiet">Nothing has happened to it until this point.</p>}
    </section>
  );
}

export function Events({ job, at, go }: Props) {
  const [type, setType] = useState("");
  const [process, setProcess] = useState("");
  const [limit, setLimit] = useState(EVENTS);
  const [text, setText] = useState("");
  const [found, problem] = useAnswer<{ events: EventRow[]; more: boolean }>("events", {
    job, at, limit, type: type.replace(/\s+/g, ""), text, where: process ? `process=${process}` : undefined,
  });
  return (
    <>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>type <input list="types" value={type} placeholder="PodExited, WorkerLost" onChange={(event) => setType(event.currentTarget.value)} /></label>
        <datalist id="types">{["WorkerLost", "PsLost", "MasterLost", "Decided", "PodExited", "TaskFinished", "TaskFailed", "SnapshotTaken"].map((each) => <option key={each} value={each} />)}</datalist>
        <label>process <input value={process} placeholder="worker-0" onInput={(event) => setProcess(event.currentTarget.value.trim())} /></label>
        <label>text <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
      </form>
      {problem && <p class="problem" role="alert">{problem}</p>}
      <div class="scroll" tabIndex={0} role="region" aria-label="List of events" onScroll={({ currentTarget: each }) => {
        // The next ones come before their place is reached.
        if (found?.more && each.scrollTop + 2 * each.clientHeight > each.scrollHeight) setLimit(Math.min(EVENTS_MAX, found.events.length + 2 * EVENTS));
      }}>
        <table class="events">
          <caption class="hidden">Events, the latest first</caption>
          <tbody>
            {found?.events.map((each) => (
              <tr key={each.seq} class={each.seq === at ? "here" : ""}>
                <td><button class="link" onClick={() => go(each.seq)} aria-label={`Go to event ${each.seq}`}>#{each.seq}</button></td>
                <td>{clock(each.time_s)}</td><td>{each.name}</td>
                <td>{each.reasons.length > 0 && <strong>{each.reasons.join("; ")} </strong>}<span class={each.reasons.length ? "quiet" : ""}>{each.text}</span></td>
              </tr>
            ))}
          </tbody>
        </table>
        {found && !found.events.length && <p class="quiet">No event until this point is like that.</p>}
        {found?.more && <p class="quiet">The latest {found.events.length}. Filter, or go to an earlier point.</p>}
      </div>
    </>
  );
}
