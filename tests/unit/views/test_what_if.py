"""Differences between two points of a log, and simulations that continue from one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.histories.long import long_log
from tests.unit.views.recorded import LOGS, recorded

from elasticdl.master.core.fold import fold
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import LogRecord, TaskFinished
from elasticdl.shared.names import Purpose
from elasticdl.views.records import task_history
from elasticdl.views.wall_time.one_task import HELD, LOST, QUEUED, task_spans
from elasticdl.views.what_if.differences import differences
from elasticdl.views.what_if.simulating import Changes, Simulated, simulate

NEAR = 0.1
"""A simulation without changes is this near to what has happened."""


def simulated(records: list[LogRecord], seq: int, changes: Changes | None = None) -> Simulated:
    return simulate(records, fold(records[:seq]), seq, changes or Changes())


def half_of(records: list[LogRecord]) -> int:
    """The record at which half of the tasks are finished."""
    finished = [record.seq for record in records if isinstance(record.envelope.event, TaskFinished)]
    return finished[len(finished) // 2]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_without_changes_a_job_takes_what_it_took(path: Path) -> None:
    records = recorded(path.stem)
    first = next(record.seq for record in records if isinstance(record.envelope.event, TaskFinished))
    for seq in (first, (first + half_of(records)) // 2, half_of(records), half_of(records) + 15):
        found = simulated(records, seq)
        assert found.really_s is not None
        assert found.seconds == pytest.approx(found.really_s, rel=NEAR), seq


def test_more_workers_and_no_failures_take_less_time() -> None:
    records = recorded("ps-killed")
    seq = half_of(records[:45])
    before = simulated(records, seq)
    assert simulated(records, seq, Changes(workers=2)).seconds < before.seconds
    assert simulated(records, seq, Changes(workers=-1)).seconds > before.seconds
    assert before.repeated
    assert simulated(records, seq, Changes(failures=False)).repeated == 0
    with pytest.raises(UserError, match="no worker is left"):
        simulated(records, seq, Changes(workers=-2))


def test_a_running_job_has_no_end_to_compare_with() -> None:
    records = list(long_log(200, workers=4))
    found = simulated(records, half_of(records))
    assert found.really_s is None
    assert found.seconds == found.training_s > 0


def test_nothing_is_said_before_the_first_task() -> None:
    records = recorded("plain")
    with pytest.raises(UserError, match="no finished training task"):
        simulated(records[:15], 15)
    with pytest.raises(UserError, match="only a job that trains"):
        simulate(records, fold([]), 1, Changes())


def test_differences_name_the_places_of_values() -> None:
    before = {"a": 1, "rows": [{"epoch": 1, "loss": 0.5}], "gone": "x"}
    after = {"a": 1, "rows": [{"epoch": 1, "loss": 0.25}, {"epoch": 2, "loss": 0.1}]}
    found = {each.where: (each.before, each.after) for each in differences(before, after)}
    assert found["rows[epoch 1].loss"] == ("0.5", "0.25")
    assert found["rows[epoch 2].loss"] == ("absent", "0.1")
    assert found["gone"] == ("x", "absent")
    assert "a" not in found


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_parts_of_a_task_sum_to_its_time(path: Path) -> None:
    records = recorded(path.stem)
    for number in range(24):
        ref = TaskRef(purpose=Purpose.TRAIN, number=number)
        entries = [each for each in task_history(records, ref) if not each.text.startswith("audit")]
        spans = task_spans(records, ref)
        until = max(span.seq for span in spans)
        last_s = records[until - 1].envelope.time_s
        assert sum(span.seconds for span in spans) == pytest.approx(last_s - entries[0].time_s, abs=0.01)
        assert all(span.seconds >= 0 for span in spans)


def test_a_task_that_lost_its_worker() -> None:
    spans = task_spans(recorded("worker-killed"), TaskRef(purpose=Purpose.TRAIN, number=8))
    assert [span.what for span in spans][:3] == [QUEUED, HELD, LOST]
    assert spans[2].process == "worker-0"
