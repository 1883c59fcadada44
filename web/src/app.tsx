// The page: an overview of jobs, or one job at one point of its log. The address holds both, so a link leads to a moment.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { JobRow } from "./api";
import { useAnswer } from "./hooks";
import { Job } from "./job";
import "./style.css";

interface Place { job: string; at: number | null }

function here(): Place {
  const query = new URLSearchParams(location.search), at = Number(query.get("at"));
  return { job: query.get("job") ?? "", at: Number.isInteger(at) && at > 0 ? at : null };
}

function App() {
  const [place, setPlace] = useState(here);
  const [list, problem] = useAnswer<{ only: string; jobs: JobRow[] }>("jobs", {});
  useEffect(() => {
    const back = () => setPlace(here());
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);
  const move = (next: Place, isNew: boolean) => {
    const query = new URLSearchParams();
    if (next.job) query.set("job", next.job);
    if (next.at) query.set("at", String(next.at));
    history[isNew ? "pushState" : "replaceState"](null, "", query.size ? `?${query}` : "/");
    setPlace(next);
  };
  if (problem) return <p class="problem" role="alert">{problem}</p>;
  if (!list) return null;
  const job = list.only || place.job;
  if (job) return <Job key={job} job={job} at={place.at} go={(at) => move({ ...place, at }, false)} home={list.only ? null : () => move({ job: "", at: null }, true)} />;
  return <Jobs rows={list.jobs} open={(key) => move({ job: key, at: null }, true)} />;
}

function Jobs({ rows, open }: { rows: JobRow[]; open: (key: string) => void }) {
  const [text, setText] = useState("");
  const shown = rows.filter((row) => Object.values(row).some((value) => value.toLowerCase().includes(text.toLowerCase())));
  return (
    <>
      <header><h1>Jobs</h1><label>search <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label></header>
      <main><section class="panel wide">
        <table>
          <caption class="hidden">Jobs</caption>
          <thead><tr><th>job</th><th>state</th><th>submitted</th><th>model</th><th>training data</th></tr></thead>
          <tbody>
            {shown.map((row) => (
              <tr key={row.key}><td><button class="link" onClick={() => open(row.key)}>{row.job}</button></td><td><span class={`state ${row.state}`}>{row.state}</span></td><td>{row.submitted}</td><td>{row.model}</td><td>{row.data}</td></tr>
            ))}
          </tbody>
        </table>
        {!shown.length && <p class="quiet">{rows.length ? "No job is like that." : "There are no jobs on this machine."}</p>}
      </section></main>
    </>
  );
}

render(<App />, document.getElementById("root")!);
