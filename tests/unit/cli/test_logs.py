"""``elasticdl logs``: the end of each log, and new lines until the launcher has ended."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from elasticdl.cli.commands import logs as command
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.shared.errors import UserError
from elasticdl.shared.names import JobId


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A job with the logs of two processes."""
    run = RunDirectory(tmp_path, JobId("job-1"))
    run.create()
    run.write(JobRecord(job=run.job, created_s=0.0, state="training"))
    run.log("master").write_text(json.dumps({"event": "job started", "level": "info", "pod": "master"}) + "\n")
    run.log("worker-0").write_text("first\nI0000 00:00:1.5 1 port.cc:153] oneDNN custom operations are on.\nsecond\n")
    run.output("worker-0").write_text("printed\n")
    return run


def test_the_end_of_each_log(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    command.logs("job-1", run.root, [], lines=1, follow=False)
    assert capsys.readouterr().out.splitlines() == [
        "master | info: job started",
        "worker-0 | second",
        "worker-0 | printed",
    ]
    command.logs("job-1", run.root, ["worker-0"], lines=30, follow=False)
    assert capsys.readouterr().out.splitlines() == ["worker-0 | first", "worker-0 | second", "worker-0 | printed"]


def test_an_unknown_process_is_answered_with_those_that_have_logs(run: RunDirectory) -> None:
    with pytest.raises(UserError, match="worker-7 has no log in") as refused:
        command.logs("job-1", run.root, ["worker-7"], lines=1, follow=False)
    assert refused.value.hint == "There are: master, worker-0."


def test_new_lines_are_printed_until_the_launcher_has_ended(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"lines": 1, "follow": True}
    following = threading.Thread(target=command.logs, args=("job-1", run.root, ["master"]), kwargs=arguments)
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
