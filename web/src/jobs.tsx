// The overview of all jobs, from which one is opened, or two are compared.

import { useState } from "preact/hooks";
import type { JobRow } from "./api";

interface Props { rows: JobRow[]; fleet: (() => void) | null; open: (key: string) => void; compare: (one: string, other: string) => void }

export function Jobs({ rows, fleet, open, compare }: Props) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState<string[]>([]);
  const shown = rows.filter((row) => Object.values(row).some((value) => value.toLowerCase().includes(text.toLowerCase())));
  // A third one takes the place of the first.
  const choose = (key: string) => setChosen(chosen.includes(key) ? chosen.filter((each) => each !== key) : [...chosen, key].slice(-2));
  const [one, other] = chosen;
  return (
    <>
      <header>
        <h1>Jobs</h1>
        <label>search <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
        {fleet && <button onClick={fleet}>Fleet</button>}
        {rows.length > 1 && <button disabled={!other} onClick={() => compare(one!, other!)}>Compare</button>}
        {rows.length > 1 && !other && <span class="quiet">Choose two jobs to compare them.</span>}
      </header>
      <main><section class="panel wide">
        <table>
          <caption class="hidden">Jobs</caption>
          <thead><tr>{["", "job", "state", "submitted", "model", "training data"].map((each) => <th key={each} scope="col">{each || <span class="hidden">compare</span>}</th>)}</tr></thead>
          <tbody>
            {shown.map((row) => (
              <tr key={row.key}>
                <td><input type="checkbox" checked={chosen.includes(row.key)} onChange={() => choose(row.key)} aria-label={`Compare ${row.job}`} /></td>
                <td><button class="link" onClick={() => open(row.key)}>{row.job}</button></td><td><span class={`state ${row.state}`}>{row.state}</span></td><td>{row.submitted}</td><td>{row.model}</td><td>{row.data}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {!shown.length && <p class="quiet">{rows.length ? "No job is like that." : "There are no jobs."}</p>}
      </section></main>
    </>
  );
}
