"""A lease is extended while work moves on."""

from __future__ import annotations

import pytest

from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.names import Purpose
from elasticdl.worker.core.tasks.leased import LeasedTask, LeasedTasks


def lease(task: int, number: int, *, purpose: Purpose = Purpose.TRAIN, dispatch: int = 1) -> LeasedTask:
    message = TaskMessage(task=TaskRef(purpose=purpose, number=task), dispatch=dispatch, term=1)
    return LeasedTask(number=number, message=message, attempt=1)


@pytest.fixture
def leases() -> LeasedTasks:
    return LeasedTasks(lease_s=9.0, deadline_s=30.0)


def test_three_extensions_fit_into_a_lease(leases: LeasedTasks) -> None:
    assert leases.interval_s == 3.0


def test_a_worker_that_hangs_loses_its_tasks(leases: LeasedTasks) -> None:
    kept = lease(1, 1)
    leases.add(kept, 100.0)
    assert leases.to_extend(129.0) == [kept]
    assert leases.to_extend(130.0) == []
    leases.progress(130.0)
    assert leases.to_extend(131.0) == [kept]


def test_a_pause_without_tasks_is_no_hang(leases: LeasedTasks) -> None:
    kept = lease(1, 1)
    leases.add(kept, 1000.0)
    assert leases.to_extend(1000.0) == [kept]


def test_two_deliveries_of_a_task_leave_together(leases: LeasedTasks) -> None:
    first, second, other = lease(1, 1), lease(1, 2), lease(2, 3)
    for one in (first, second, other):
        leases.add(one, 0.0)
    assert leases.release(first.message.task) == [first, second]
    assert leases.release(first.message.task) == []
    assert not leases.has(first.message.task)
    assert not leases.is_leased(second)
    assert leases.to_extend(0.0) == [other]


@pytest.mark.parametrize("purpose", [Purpose.EVALUATE, Purpose.PREDICT, Purpose.MERGE, Purpose.EXPORT])
def test_two_dispatches_of_an_auxiliary_task_are_two_orders(leases: LeasedTasks, purpose: Purpose) -> None:
    first, other = lease(0, 1, purpose=purpose), lease(0, 2, purpose=purpose, dispatch=2)
    again = lease(0, 3, purpose=purpose)
    leases.add(first, 0.0)
    assert not leases.joins(other)
    leases.add(other, 0.0)
    assert leases.joins(again)
    leases.add(again, 0.0)
    assert leases.release_dispatch(first.message) == [first, again]
    assert leases.to_extend(0.0) == [other]
    assert leases.release_dispatch(other.message) == [other]
    assert not leases.tasks


def test_a_train_task_is_the_same_for_each_dispatching_master(leases: LeasedTasks) -> None:
    leases.add(lease(1, 1), 0.0)
    assert leases.joins(lease(1, 2, dispatch=2))
    assert not leases.joins(lease(2, 3))
