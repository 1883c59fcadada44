"""When a batch has been in the code of the model file for too long."""

from __future__ import annotations

import pytest

from elasticdl.shared.job.spec import FIRST_BATCH_FACTOR
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import RunningBatch
from elasticdl.shared.names import Purpose
from elasticdl.worker.core.batch_clock import SLOW_S_MAX, Activity, BatchClock, Work


def activity(work: Work = Work.READ, batch: int = 0, *, is_first: bool = False) -> Activity:
    running = RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=2), batch=batch)
    return Activity(batch=running, work=work, thread=1, is_first=is_first)


def overdue_after(clock: BatchClock, running: Activity, *, until_s: float = 1000.0) -> float:
    """Seconds until the clock calls an activity overdue, which runs from 0 on."""
    ticks = 0
    while (now_s := ticks * clock.tick_s) < until_s:
        if clock.tick(now_s, (running,)).overdue:
            return now_s
        ticks += 1
    return until_s


def test_a_batch_is_overdue_at_its_deadline() -> None:
    assert overdue_after(BatchClock(30.0), activity()) == pytest.approx(30.0)


def test_the_first_batch_that_is_compiled_may_take_longer() -> None:
    assert overdue_after(BatchClock(30.0), activity(is_first=True)) == pytest.approx(30.0 * FIRST_BATCH_FACTOR)


def test_without_a_deadline_nothing_is_overdue() -> None:
    assert overdue_after(BatchClock(0.0), activity(), until_s=5000.0) == 5000.0


def test_other_batches_of_a_worker_do_not_add_up() -> None:
    clock = BatchClock(30.0)
    for second in range(200):
        assert not clock.tick(second, (activity(batch=second // 20),)).overdue, "each object is a new activity"


def test_the_clock_stands_still_while_a_batch_waits_for_other_processes() -> None:
    clock, running = BatchClock(30.0), activity(Work.TRAIN)
    running.waits = True
    for second in range(100):
        assert not clock.tick(second, (running,)).overdue
    running.waits = False
    assert not any(clock.tick(100.0 + second, (running,)).overdue for second in range(30))
    assert clock.tick(130.0, (running,)).overdue == (running,)


def test_a_batch_that_waited_between_two_looks_has_made_progress() -> None:
    clock, running = BatchClock(30.0), activity(Work.TRAIN)
    for second in range(100):
        running.steps += second % 20 == 0
        assert not clock.tick(second, (running,)).overdue


def test_a_process_that_was_suspended_has_not_computed_meanwhile() -> None:
    clock, running = BatchClock(30.0), activity()
    clock.tick(0.0, (running,))
    clock.tick(1.0, (running,))
    assert not clock.tick(500.0, (running,)).overdue


def test_people_learn_of_a_slow_batch_once_and_of_its_end() -> None:
    clock, running = BatchClock(600.0), activity()
    seen = [clock.tick(float(second), (running,)).slow for second in range(100)]
    assert [slow for slow in seen if slow] == [((running, SLOW_S_MAX),)]
    assert clock.tick(100.0, ()).continued == (running,)
    assert clock.tick(101.0, ()).continued == ()


def test_people_learn_that_a_slow_batch_has_made_progress() -> None:
    clock, running = BatchClock(600.0), activity()
    for second in range(100):
        clock.tick(float(second), (running,))
    running.steps += 1
    assert clock.tick(100.0, (running,)).continued == (running,)


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (Work.READ, "reading and feeding batch 3 of task train 2"),
        (Work.PREDICT, "predicting batch 3 of task train 2"),
        (Work.CALLBACKS, "running the callbacks (task train 2)"),
    ],
)
def test_an_activity_is_described_in_words(work: Work, text: str) -> None:
    assert str(activity(work, 3)) == text
