"""``elasticdl logs``: the end of each log, and new lines until the launcher has ended."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from elasticdl.cli.commands import logs as command
from elasticdl.cli.jobs.local_handle import LocalJobHandle
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.shared.errors import UserError
from elasticdl.shared.names import JobId


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A job with the logs of two processes."""
    run = RunDirectory(tmp_path, JobId("job-1"))
    run.create()
    run.write(JobRecord(job=run.job, created_s=0.0, state="training", launcher_pid=os.getpid()))
    run.log("master").write_text(json.dumps({"event": "job started", "level": "info", "pod": "master"}) + "\n")
    run.log("worker-0").write_text("first\nI0000 00:00:1.5 1 port.cc:153] oneDNN custom operations are on.\nsecond\n")
    run.output("worker-0").write_text("printed\n")
    return run


def test_the_end_of_each_log(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    command.logs(LocalJobHandle(run), [], lines=1, follow=False)
    assert capsys.readouterr().out.splitlines() == [
        "master | info: job started",
        "worker-0 | second",
        "worker-0 | printed",
    ]
    command.logs(LocalJobHandle(run), ["worker-0"], lines=30, follow=False)
    assert capsys.readouterr().out.splitlines() == ["worker-0 | first", "worker-0 | second", "worker-0 | printed"]


def test_an_unknown_process_is_answered_with_those_that_have_logs(run: RunDirectory) -> None:
    with pytest.raises(UserError, match="worker-7 of job job-1 has no log") as refused:
        command.logs(LocalJobHandle(run), ["worker-7"], lines=1, follow=False)
    assert refused.value.hint == "There are: master, worker-0."


def test_new_lines_are_printed_until_the_launcher_has_ended(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"lines": 1, "follow": True}
    following = threading.Thread(target=command.logs, args=(LocalJobHandle(run), ["master"]), kwargs=arguments)
    printed = ""
    with run.lock():
        following.start()
        while "master | new" not in printed:  # Lines that are written before it follows are not new.
            for pod in ("worker-0", "master"):
                with run.log(pod).open("a") as log:
                    log.write("new\n")
            following.join(0.05)
            printed += capsys.readouterr().out
    following.join()
    assert printed.startswith("master | ") and "worker-0" not in printed


def test_as_many_lines_as_asked_for(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{number} " + "x" * 200 for number in range(1000)]
    run.log("master").write_text("\n".join(lines) + "\nnot ended")
    command.logs(LocalJobHandle(run), ["master"], lines=900, follow=False)
    assert capsys.readouterr().out.splitlines() == [f"master | {line}" for line in [*lines[-900:], "not ended"]]


def test_a_follower_prints_every_line_once_and_the_last_ones_too(run: RunDirectory) -> None:
    log = run.log("master")
    log.write_text("old\nbegun")
    found, new = LocalJobHandle(run).logs.read([], 10)
    assert ("master", "old") in found and "begun" not in [line for _, line in found]
    with log.open("a") as more:
        more.write(" and ended\n" + "many\n" * 50_000 + "last")
    run.output("worker-1").write_text("a new process\n")
    lines = [*new(), *new(last=True)]
    assert lines[0] == ("master", "begun and ended") and ("worker-1", "a new process") in lines
    of_master = [line for pod, line in lines if pod == "master"]
    assert len(of_master) == 50_002 and of_master[-1] == "last"
    assert new(last=True) == []
