"""How many tasks a worker takes at once."""

from __future__ import annotations

import pytest

from elasticdl.worker.core.tasks.ahead import BATCHES_MAX, SECONDS_MAX, TasksAhead


@pytest.mark.parametrize(
    ("batches_per_task", "batch_s", "count"),
    [
        (1, 0.001, BATCHES_MAX),
        (4, 0.001, BATCHES_MAX // 4),
        (1000, 0.001, 1),
        (1, SECONDS_MAX / 5.5, 5),
        (2, SECONDS_MAX / 5.5, 2),
        (1, 10.0, 1),
    ],
)
def test_as_many_as_keep_it_busy_for_a_moment(batches_per_task: int, batch_s: float, count: int) -> None:
    ahead = TasksAhead(batches_per_task)
    assert ahead.count == 1, "it is not known yet how long a batch takes"
    for number in range(3):
        ahead.on_batch(100.0 + number * batch_s)
    assert ahead.count == count


def test_a_worker_that_becomes_slow_takes_fewer() -> None:
    ahead = TasksAhead(1)
    for now_s in (0.0, 0.001, 0.002, 1.0):
        ahead.on_batch(now_s)
    assert ahead.count == 1


def test_batches_that_take_no_time_are_no_error() -> None:
    ahead = TasksAhead(1)
    ahead.on_batch(1.0)
    ahead.on_batch(1.0)
    assert ahead.count == BATCHES_MAX


def test_batches_are_short_once_that_is_known() -> None:
    ahead, were_short = TasksAhead(64), []
    for now_s in (0.0, SECONDS_MAX / BATCHES_MAX / 2, 1.0):
        ahead.on_batch(now_s)
        were_short.append(ahead.batches_are_short)
    assert were_short == [False, True, False]
