// Two jobs side by side: key numbers, the settings that differ, and curves over each other.

import { useEffect, useState } from "preact/hooks";
import type { Comparison, Curves as CurveFacts } from "./api";
import { Curves } from "./curves";
import { number, seconds } from "./format";
import { useAnswer } from "./hooks";
import { Panel } from "./panel";

const AGAIN_MS = 1000;

export function Compare({ job, other, home }: { job: string; other: string; home: () => void }) {
  const [round, setRound] = useState(0);
  const [facts, problem] = useAnswer<Comparison>("compare", { job, with: other, round });
  const isChanging = !facts || facts.read.some((each) => each.live || each.read < each.total);
  useEffect(() => {
    if (!isChanging) return;
    const timer = setTimeout(() => setRound(round + 1), AGAIN_MS);
    return () => clearTimeout(timer);
  }, [round, isChanging]);
  const [one, two] = facts?.read ?? [];
  const [mine] = useAnswer<CurveFacts>("curves", { job, read: one?.read }, !!one?.read);
  const [theirs] = useAnswer<CurveFacts>("curves", { job: other, read: two?.read }, !!two?.read);
  const [bySteps, setBySteps] = useState(true);
  useEffect(() => { document.title = `${job} and ${other} · ElasticDL`; }, [job, other]);
  return (
    <>
      <header>
        <button onClick={home}>All jobs</button>
        <h1>{one?.job ?? job} and {two?.job ?? other}</h1>
        <span class="quiet" role="status">{facts?.read.filter((each) => each.read < each.total).map((each) => `${each.job}: read ${each.read} of ${each.total} events`).join(", ")}</span>
      </header>
      {[problem, one?.problem, two?.problem].map((each) => each && <p key={each} class="problem" role="alert">{each}</p>)}
      {facts && one && two && (
        <main>
          <Panel title="Key numbers">
            <Side caption="Key numbers" names={[one.job, two.job]} rows={[["state", ...facts.states] as [string, string, string],
              ...facts.numbers.map(([name, unit, a, b]): [string, string, string] => [name, shown(a, unit), shown(b, unit)])]} />
          </Panel>
          <Panel title="Settings that differ">
            {facts.settings.length ? <Side caption="Settings that differ" names={[one.job, two.job]} rows={facts.settings} /> : <p class="quiet">All settings are the same.</p>}
          </Panel>
          <Panel title="Curves" wide>
            <form class="filters"><label>over <select value={bySteps ? "batches" : "time"} onChange={(event) => setBySteps(event.currentTarget.value === "batches")}>
              <option value="batches">batches</option><option value="time">time since the start</option>
            </select></label></form>
            {mine && theirs && <Curves at={Infinity} bySteps={bySteps} sources={[
              { name: one.job, facts: mine, from_s: one.first_s }, { name: two.job, facts: theirs, from_s: two.first_s }]} />}
          </Panel>
        </main>
      )}
    </>
  );
}

function shown(value: number | null, unit: string): string {
  if (value === null) return "–";
  if (unit === "s") return seconds(value);
  return unit === "%" ? `${value.toFixed(1)}%` : `${number(value)}${unit}`;
}

function Side({ caption, names, rows }: { caption: string; names: [string, string]; rows: [string, string, string][] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
      <table class="side">
        <caption class="hidden">{caption}</caption>
        <thead><tr><th scope="col"><span class="hidden">name</span></th>{names.map((each, index) => <th key={index} scope="col">{each}</th>)}</tr></thead>
        <tbody>{rows.map(([name, a, b]) => <tr key={name}><th scope="row">{name}</th><td>{a}</td><td>{b}</td></tr>)}</tbody>
      </table>
    </div>
  );
}
