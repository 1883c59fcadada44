// The page: an overview of jobs, two of them, one at one point of its log, or a fleet at one of its decisions. The address holds it all: a link leads to a moment.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { JobRow } from "./api";
import { Compare } from "./compare";
import { Fleet } from "./fleet";
import { useAnswer } from "./hooks";
import { Job } from "./job";
import { Jobs } from "./jobs";
import "./style.css";

interface Place { job: string; with: string; fleet: string; at: number | null }
const HOME: Place = { job: "", with: "", fleet: "", at: null };

function here(): Place {
  const query = new URLSearchParams(location.search), at = Number(query.get("at"));
  return { job: query.get("job") ?? "", with: query.get("with") ?? "", fleet: query.get("fleet") ?? "", at: Number.isInteger(at) && at > 0 ? at : null };
}

function App() {
  const [place, setPlace] = useState(here);
  const [list, problem] = useAnswer<{ only: string; jobs: JobRow[]; fleet: boolean; opens_fleet_jobs: boolean }>("jobs", {});
  useEffect(() => {
    const back = () => setPlace(here());
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);
  const move = (next: Place, isNew: boolean) => {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(next)) if (value) query.set(name, String(value));
    history[isNew ? "pushState" : "replaceState"](null, "", query.size ? `?${query}` : "/");
    setPlace(next);
  };
  if (problem) return <p class="problem" role="alert">{problem}</p>;
  if (!list) return null;
  const job = list.only || place.job, home = () => move(HOME, true);
  if (job && place.with) return <Compare key={`${job} ${place.with}`} job={job} other={place.with} home={home} />;
  if (job) return <Job key={job} job={job} at={place.at} go={(at) => move({ ...place, at }, false)} home={list.only ? null : home} />;
  const open = (key: string) => move({ ...HOME, job: key }, true);
  if (list.fleet && place.fleet) return <Fleet at={place.at} go={(at) => move({ ...place, at }, false)} home={home} open={list.opens_fleet_jobs ? open : null} />;
  return <Jobs rows={list.jobs} fleet={list.fleet ? () => move({ ...HOME, fleet: "1" }, true) : null} open={open} compare={(one, other) => move({ ...HOME, job: one, with: other }, true)} />;
}

render(<App />, document.getElementById("root")!);
