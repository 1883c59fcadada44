"""What is lost of an event log, and what the run directory remembers of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.job_log import finish, half_done

from elasticdl.cli.jobs.resumption import lost_part
from elasticdl.cli.jobs.run_directory import LogEnd, RunDirectory
from elasticdl.shared.messages.events import Envelope, LogRecord, LostLog, TermStarted
from elasticdl.shared.names import Incarnation, JobId, PodName, Service
from elasticdl.views.history import epoch_rows, lost_history


def record(seq: int) -> LogRecord:
    envelope = Envelope(
        service=Service.MASTER,
        name=PodName("master"),
        incarnation=Incarnation("m"),
        number=seq,
        time_s=100.0 + seq,
        event=TermStarted(term=1),
    )
    return LogRecord(seq=seq, envelope=envelope)


@pytest.mark.parametrize(
    ("records", "seen", "lost"),
    [
        (3, LogEnd(seq=3, time_s=103.0), None),
        (4, LogEnd(seq=3, time_s=103.0), None),
        (4, LogEnd(), None),
        (2, LogEnd(seq=5, time_s=105.0), LostLog(after_s=102.0, until_s=105.0, records=3)),
        (0, LogEnd(seq=5, time_s=105.0), LostLog(after_s=0.0, until_s=105.0, records=5)),
        (0, LogEnd(), LostLog()),
    ],
)
def test_what_is_lost_is_known_by_how_far_the_log_had_reached(records: int, seen: LogEnd, lost: LostLog | None) -> None:
    assert lost_part(record(records) if records else None, seen) == lost


def test_the_end_of_the_log_is_remembered_in_the_run_directory(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, JobId("job-1"))
    assert run.read_log_end() == LogEnd()
    run.create()
    run.write_log_end(LogEnd(seq=7, time_s=1.5))
    assert run.read_log_end() == LogEnd(seq=7, time_s=1.5)
    (run.path / "log_end.json").write_text("{")
    assert run.read_log_end() == LogEnd()


def test_a_resume_puts_on_the_log_what_the_history_file_knows_of_lost_records(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, JobId("job-1"))
    assert run.read_history() == ""
    log = half_done()
    finish(log)
    (row,) = epoch_rows(log.state)
    known = {**row, "batches": row["batches"] - 1, "loss": 7.0}, {**row, "epoch": 2, "loss": 8.0}
    history = lost_history(log.state, "".join(json.dumps(each) + "\n" for each in known))
    assert [json.loads(line)["epoch"] for line in history.splitlines()] == [2]
    log.state.lost_logs.append((1.0, LostLog(history=history)))
    assert [(each["epoch"], each["loss"]) for each in epoch_rows(log.state)] == [(1, row["loss"]), (2, 8.0)]
    assert lost_history(log.state, "damaged") == ""
