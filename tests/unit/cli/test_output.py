"""Tables and JSON of inspecting commands, on a terminal and in a pipe."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from elasticdl.cli import event_commands
from elasticdl.cli.commands.jobs import list_jobs
from elasticdl.cli.display.output import plain, print_json, print_table
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.main import app
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages import events
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.names import NOBODY, JobId, PodName, Service
from elasticdl.views.records import record_facts

INSPECTING = ("jobs", "status", "report", "tasks", "task", "show", "replay", "why", "doctor")
"""``show`` is ``elasticdl events``."""


def printed(*, terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80, no_color=True)
    print_table(console, ("job", "state"), [("a", "pending: no\nnode"), ("b", "running")], title="Jobs")
    return file.getvalue()


def test_a_pipe_gets_one_line_for_each_row() -> None:
    assert printed(terminal=False) == "job\tstate\na\tpending: no node\nb\trunning\n"


def test_a_terminal_gets_boxes() -> None:
    assert "│" in printed(terminal=True)


def test_numbers_that_json_lacks_are_null() -> None:
    file = io.StringIO()
    print_json(Console(file=file), {"loss": float("nan"), "ranges": RangeSet([(0, 3)]), "state": Service.PS})
    assert json.loads(file.getvalue())["loss"] is None
    assert json.loads(file.getvalue())["state"] == "ps"


def test_an_event_is_one_object_with_its_kind() -> None:
    envelope = Envelope(
        service=Service.MASTER,
        name=PodName("master"),
        incarnation=NOBODY,
        number=1,
        time_s=1.0,
        event=events.TermStarted(term=3),
    )
    facts = plain(record_facts(LogRecord(seq=7, envelope=envelope)))
    assert (facts["seq"], facts["name"], facts["event"]["type"], facts["event"]["term"]) == (
        7,
        "master",
        "TermStarted",
        3,
    )


def test_jobs_are_rows_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(tmp_path, JobId("one"))
    run.create()
    run.write(JobRecord(job=run.job, created_s=1.0, state="succeeded", model="m.py:f", training_data="my data"))
    (facts,) = list_jobs(tmp_path, as_json=True)
    assert capsys.readouterr().out == ""
    assert (facts["job"], facts["state"], facts["training_data"]) == ("one", "succeeded", "my data")
    list_jobs(tmp_path)
    header, row = capsys.readouterr().out.splitlines()
    assert header.split("\t") == ["job", "state", "submitted", "model", "training data"]
    assert row.split("\t")[0] == "one"


@pytest.mark.parametrize("name", INSPECTING)
def test_every_inspecting_command_has_json(name: str) -> None:
    registered = [*app.registered_commands, *event_commands.events.registered_commands]
    callbacks = [(each.name, each.callback) for each in registered if each.callback]
    (callback,) = (one for own, one in callbacks if (own or one.__name__) == name)
    assert "as_json" in callback.__dict__["__signature__"].parameters
