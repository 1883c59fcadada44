"""Commands that inspect a job take its exported log in its place."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from tests.unit.cli.job_log import SPEC, half_done
from tests.unit.views.recorded import Recorded, header_of, recorded
from typer.testing import CliRunner

from elasticdl.cli.main import app
from elasticdl.shared.errors import UserError
from elasticdl.views.files.exported_log import export


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records, path = recorded("ps-killed"), tmp_path_factory.mktemp("exported") / "job.edl"
    asyncio.run(export(Recorded(records), path, header_of(records), lambda envelope: envelope))
    return path


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("command", ["status", "report", "tasks", "replay", "why"])
def test_a_file_takes_the_place_of_the_job(command: str, file: Path) -> None:
    assert "model-836a85" in run(command, file) or command in ("tasks", "replay")
    assert json.loads(run(command, file, "--json"))


def test_one_task(file: Path) -> None:
    assert "#44 " in run("task", file, "3")


def test_events_between_points(file: Path) -> None:
    printed = run("events", file, "--since=first PsLost", "--until=+42s", "--type=PodExited,WorkerStopped")
    assert [line.split()[0] for line in printed.splitlines()] == ["#39", "#119", "#120", "#121", "#123"]
    assert run("events", "show", file, "--where=cause=preempted").startswith("#39 ")
    assert len(run("events", file).splitlines()) == 134
    assert len(run("events", file, "--follow", "--since=#130").splitlines()) == 5
    (line,) = run("events", file, "--json", "--since=#39", "--until=#39").splitlines()
    assert json.loads(line)["event"]["pod"] == "ps-0"


def test_a_point_that_the_log_does_not_have(file: Path) -> None:
    for command, flag in (("events", "since"), ("replay", "until")):
        with pytest.raises(UserError, match=r"has no (such event|event WorkerLost)"):
            run(command, file, f"--{flag}=first WorkerLost")
    with pytest.raises(UserError, match="ends at #134"):
        run("replay", file, "--until=500")
    with pytest.raises(UserError, match=r"--diff=500: the event log of .* ends at #134"):
        run("replay", file, "--diff=500")
    with pytest.raises(UserError, match=r"--until=500: the event log of .* ends at #134"):
        run("replay", file, "--diff=3", "--until=500")

    with pytest.raises(UserError, match=r"--since=#500: the event log of .* ends at .*#134"):
        run("events", file, "--since=#500")
    with pytest.raises(UserError, match="--since=#50 is after --until=40"):
        run("events", file, "--since=#50", "--until=40")
    for command in ("replay", "events"):
        with pytest.raises(UserError, match="--until=0 is not a point"):
            run(command, file, "--until=0")


def test_replay_until_an_event(file: Path) -> None:
    assert run("replay", file, "--until=first PsLost").startswith("State after #39,")
    assert "all are the same" in run("replay", file, "--verify")


def test_tasks_by_worker_epoch_and_duration(file: Path) -> None:
    slowest = json.loads(run("tasks", file, "--slowest=3", "--json"))["tasks"]
    assert [row["task"] for row in slowest] == ["0", "1", "2"], "these were computed twice"
    assert {row["finished"] for row in slowest} == {"2"}
    rows = json.loads(run("tasks", file, "--worker=worker-1", "--epoch=2", "--json"))["tasks"]
    assert {row["worker"] for row in rows} == {"worker-1"} and {row["epoch"] for row in rows} == {"2"}
    assert "No task matches these filters" in run("tasks", file, "--epoch=7")


def test_an_exported_log_is_exported_again_without_names(file: Path, tmp_path: Path) -> None:
    assert "Wrote 134 events" in run("events", "export", file, tmp_path / "other.edl", "--anonymize")
    assert "job-836a85" in run("status", tmp_path / "other.edl")


def test_a_job_that_ran_when_its_log_was_exported(tmp_path: Path) -> None:
    records, path = half_done().records, tmp_path / "job.edl"
    header = header_of(records, state="training", running=True)
    asyncio.run(export(Recorded(records), path, header, lambda envelope: envelope))
    assert "was running when its event log was exported" in run("status", path)
    facts = json.loads(run("status", path, "--json"))
    assert (facts["job"], facts["state"], facts["alive"]) == (SPEC.job, "training", False)


def test_why_names_causes_events_and_advice(file: Path) -> None:
    printed = run("why", file)
    assert "computing batches again that a lost ps had absorbed" in printed
    assert "dispatch 8 tasks again that a ps lacks" in printed
    assert "--checkpoint_steps" in printed
    facts = json.loads(run("why", file, "--json"))
    assert sum(part["percent"] for part in facts["parts"]) == pytest.approx(100.0, abs=0.1)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        run("status", tmp_path / "missing.edl")


@pytest.mark.parametrize("command", ["logs", "resume", "stop"])
def test_what_needs_the_job_refuses_its_log(command: str, file: Path) -> None:
    with pytest.raises(UserError, match="is a file, not a job"):
        run(command, file)


def test_why_one_task(file: Path) -> None:
    assert "finished, until it was dispatched again\t" in run("why", file, "task", "3")
    assert json.loads(run("why", file, "3", "--json"))["parts"][0]["what"] == "waiting in the queue"
    for words in (["tasks", "3"], ["task"], ["x"]):
        with pytest.raises(UserError, match="is not a task"):
            run("why", file, *words)
    with pytest.raises(UserError, match="says nothing about task 99"):
        run("why", file, "task", "99")


def test_decisions_one_by_one(file: Path) -> None:
    lines = run("replay", file, "--step", "--until=#44").splitlines()
    assert [line.split()[0] for line in lines] == ["#3", "#11", "#12", "#40", "#44"]
    assert lines[-1].endswith("(reason: dispatch 8 tasks again that a ps lacks)")
    assert json.loads(run("replay", file, "--step", "--json").splitlines()[0])["seq"] == 3


def test_what_changed_between_two_points(file: Path) -> None:
    rows = dict(line.split("\t", 1) for line in run("replay", file, "--diff=38", "--until=50").splitlines()[1:])
    assert rows["pods.ps-0.starts"] == "1\t2"
    assert rows["tasks.finished"] == "8\t2"
    assert json.loads(run("replay", file, "--diff=50", "--until=38", "--json"))["from"] == 38


def test_a_simulation_stands_beside_what_happened(file: Path) -> None:
    printed = run("replay", file, "--until=first PsLost", "--simulate", "--workers=+2", "--no-failures")
    assert [line.split("\t")[0] for line in printed.splitlines()[2:5]] == [
        "as it was",
        "+2 workers, no failures",
        "what happened",
    ]
    found = json.loads(run("replay", file, "--until=#30", "--simulate", "--json"))
    assert found["unchanged"] == found["changed"]


def test_a_job_that_has_ended_is_not_simulated(file: Path) -> None:
    with pytest.raises(UserError, match=r"had ended by #134 \(succeeded\), so nothing is left to simulate"):
        run("replay", file, "--simulate")


def test_questions_of_replay_exclude_each_other(file: Path) -> None:
    with pytest.raises(UserError, match="--step and --diff are different questions"):
        run("replay", file, "--step", "--diff=3")
    with pytest.raises(UserError, match="change a simulation"):
        run("replay", file, "--workers=2")


def test_metrics_trace_and_page(file: Path, tmp_path: Path) -> None:
    assert 'elasticdl_job_state{training_job="model-836a85",state="succeeded"} 1' in run("metrics", file)
    assert "Wrote the trace" in run("trace", file, tmp_path / "t.json.gz", "--since=first PsLost", "--until=#60")
    trace = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    events = [each["args"]["event"] for each in trace["traceEvents"] if "event" in each.get("args", {})]
    assert 39 <= min(events) <= max(events) <= 60
    assert "Wrote the report" in run("report", file, f"--html={tmp_path / 'r.html'}")
    page = (tmp_path / "r.html").read_text()
    for text in ("model-836a85: succeeded", "Where the time went", "Lost processes", "slowest tasks", "<svg"):
        assert text in page
    with pytest.raises(UserError, match="can't write"):
        run("report", file, f"--html={tmp_path}")


class Collector(BaseHTTPRequestHandler):
    """Takes what OTLP posts, and refuses it under another path."""

    spans: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = json.loads(gzip.decompress(self.rfile.read(int(self.headers["Content-Length"]))))
        known = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
        if known:
            scopes = [scope for each in body["resourceSpans"] for scope in each["scopeSpans"]]
            self.spans.extend(span["name"] for scope in scopes for span in scope["spans"])
        self.send_response(200 if known else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_trace_is_sent_to_a_collector(file: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            assert "Sent the trace of model-836a85" in run("trace", file, f"--otlp={url}")
            with pytest.raises(UserError, match="refuses the trace: 404"):
                run("trace", file, f"--otlp={url}/other/v1/traces")
        finally:
            server.shutdown()
            thread.join()
    assert {"job model-836a85", "epoch 1", "train 3"} <= set(Collector.spans)
    with pytest.raises(UserError, match="can't reach"):
        run("trace", file, f"--otlp={url}")
    with pytest.raises(UserError, match="is no address"):
        run("trace", file, "--otlp=localhost:4318")
    with pytest.raises(UserError, match="a trace needs a place"):
        run("trace", file)


def test_doctor_says_what_is_wrong_and_writes_all_of_it(file: Path, tmp_path: Path) -> None:
    printed = run("doctor", file, f"--output={tmp_path / 'd.zip'}").splitlines()
    assert printed[0] == "fine     nothing is wrong with this job"
    assert printed[1] == "note     ps-0 ended: preempted (1 time: #39)"
    assert any("--checkpoint_steps" in line for line in printed)
    with zipfile.ZipFile(tmp_path / "d.zip") as bundle:
        assert {"versions.json", "report.html", "settings.json", "why.json"} < set(bundle.namelist())
        assert json.loads(bundle.read("versions.json"))["packages"]["elasticdl"]
        (tmp_path / "again.edl").write_bytes(bundle.read("events.edl"))
    assert len(run("events", tmp_path / "again.edl").splitlines()) == 134


def test_doctor_finds_a_job_that_did_not_end(tmp_path: Path) -> None:
    records, path = recorded("plain")[:40], tmp_path / "half.edl"
    asyncio.run(export(Recorded(records), path, header_of(records, state="interrupted"), lambda envelope: envelope))
    result = CliRunner().invoke(app, ["doctor", str(path), f"--output={tmp_path / 'd.zip'}", "--json"])
    assert result.exit_code == 1
    assert "was interrupted" in json.loads(result.output)["problems"][0]
