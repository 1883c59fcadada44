"""Losses, metrics, batches and records of an epoch: every reported batch counts once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.unit.master.driver import Driver, job_spec

from elasticdl.master.core.training.staleness import StalenessTotals
from elasticdl.master.core.training.statistics import EpochTotals
from elasticdl.shared.job.tasks import MetricStates, TaskRef
from elasticdl.shared.messages import events
from elasticdl.shared.names import PodName, Purpose, Service


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Tasks of 5 batches with 10 records each, 20 tasks an epoch."""
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    yield driver
    driver.check_replay()


def sums(value: float) -> MetricStates:
    return {"loss": (array("d", [value]).tobytes(),)}


def finish(driver: Driver, task: int, *counted: tuple[int, int], loss: float = 1.0, **details: Any) -> None:
    """A worker finishes a task; all its batches had this loss."""
    batches = sum(end - start for start, end in counted)
    driver.finish(
        task,
        batches=batches,
        records=10 * batches,
        loss_sum=loss * batches,
        states=sums(loss * batches),
        counted=counted,
        **details,
    )


def give_back(
    driver: Driver, task: int, *counted: tuple[int, int], loss: float = 1.0, staleness: Mapping[int, int] | None = None
) -> None:
    """As ``finish``, of what was done of a task before it was given back."""
    batches = sum(end - start for start, end in counted)
    event = events.TaskReturned(
        task=TaskRef(purpose=Purpose.TRAIN, number=task),
        dispatch=1,
        attempt=1,
        reason="SIGTERM",
        records=10 * batches,
        loss_sum=loss * batches,
        states=sums(loss * batches),
        counted=counted,
        staleness=staleness or {},
    )
    driver.feed(event, Service.WORKER, "worker-0", driver.incarnation("worker-0"))


def totals(driver: Driver, epoch: int = 0) -> EpochTotals:
    assert driver.state.training is not None
    return driver.state.training.epochs[epoch]


def known(driver: Driver) -> tuple[int, int, float, float]:
    """Batches, records and both sums of losses of the first epoch."""
    of = totals(driver)
    return of.batches, of.records, of.loss_sum, of.states["loss"][0][0]


def test_a_repeated_task_adds_nothing_to_the_statistics(driver: Driver) -> None:
    finish(driver, 0, (0, 5))
    driver.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    driver.start_pod("ps-0")
    finish(driver, 0, (0, 5), loss=9.0)
    finish(driver, 0, (2, 5), loss=9.0)
    assert known(driver) == (5, 50, 5.0, 5.0)
    assert totals(driver).tasks == 1


def test_metric_states_of_several_tasks_come_with_the_last_one(driver: Driver) -> None:
    for task in (0, 1):
        driver.finish(task, batches=5, records=50, loss_sum=5.0, counted=((0, 5),), states_follow=True)
    assert totals(driver).states == {}
    driver.finish(2, batches=5, records=50, loss_sum=5.0, states=sums(15.0), counted=((0, 5),))
    assert known(driver) == (15, 150, 15.0, 15.0)


def test_metric_states_that_contain_those_of_a_known_task_do_not_count(driver: Driver) -> None:
    finish(driver, 0, (0, 5))
    driver.finish(0, batches=5, records=50, loss_sum=5.0, counted=((0, 5),), states_follow=True)
    driver.finish(1, batches=5, records=50, loss_sum=5.0, states=sums(10.0), counted=((0, 5),))
    assert known(driver) == (10, 100, 10.0, 5.0)
    finish(driver, 2, (0, 5))
    assert known(driver) == (15, 150, 15.0, 10.0)


def test_a_worker_that_starts_again_counts_although_the_former_one_has_repeated_a_task(driver: Driver) -> None:
    finish(driver, 0, (0, 5))
    driver.finish(0, batches=5, records=50, loss_sum=5.0, counted=((0, 5),), states_follow=True)
    driver.exit_pod("worker-0", events.ExitCause.PREEMPTED)
    driver.start_pod("worker-0")
    finish(driver, 1, (0, 5))
    assert known(driver) == (10, 100, 10.0, 10.0)


def test_a_returned_task_counts_together_with_the_rest_from_another_worker(driver: Driver) -> None:
    give_back(driver, 0, (0, 2), loss=3.0)
    assert known(driver) == (2, 20, 6.0, 6.0)
    finish(driver, 0, (2, 5))
    assert known(driver) == (5, 50, 9.0, 9.0)
    give_back(driver, 0, (0, 2), loss=3.0)
    assert known(driver) == (5, 50, 9.0, 9.0)


def test_of_overlapping_statistics_the_larger_part_counts(driver: Driver) -> None:
    finish(driver, 0, (3, 5), loss=3.0)  # A killed worker had computed the others.
    give_back(driver, 0, (2, 4), loss=9.0)
    assert known(driver) == (2, 20, 6.0, 6.0)
    finish(driver, 0, (0, 5))
    assert known(driver) == (5, 50, 5.0, 5.0)


def test_in_an_old_log_the_last_batches_count_and_never_too_many(driver: Driver) -> None:
    driver.finish(0, batches=2, records=20, loss_sum=2.0, states=sums(2.0))
    give_back(driver, 0, (0, 3))
    driver.finish(1, batches=8, records=80, loss_sum=8.0, states=sums(8.0))  # Three of them twice.
    assert known(driver) == (5, 50, 5.0, 5.0)


def test_a_result_without_batches_starts_no_epoch(driver: Driver) -> None:
    finish(driver, 20)
    give_back(driver, 20)
    assert driver.state.training is not None
    assert not driver.state.training.epochs


def test_the_loss_of_an_epoch_is_the_metric_once_it_is_merged() -> None:
    of = EpochTotals(batches=2, loss_sum=3.0)
    assert of.loss == 1.5
    of.results = {"loss": 1.25}
    assert of.loss == 1.25


def test_staleness_is_summed_by_worker(driver: Driver) -> None:
    finish(driver, 0, (0, 5), staleness={0: 3, 2: 2}, seconds={"pull": 1.0, "wait": 0.5, "total": 6.0})
    driver.feed(events.ScaleRequested(workers=2), Service.CLIENT, "client")
    driver.start_pod("worker-1")
    finish(driver, 1, (0, 5), worker="worker-1", staleness={1500: 1}, seconds={"push": 1.0, "total": 4.0})
    give_back(driver, 2, (0, 1), staleness={1: 1})
    assert driver.state.training is not None
    by_worker = driver.state.training.statistics.staleness
    assert by_worker[PodName("worker-0")].batches == {0: 3, 1: 1, 2: 2}
    total = StalenessTotals.of_all(by_worker.values())
    assert (total.count, total.mean, total.largest) == (7, 215.0, 1500)
    assert [total.quantile(share) for share in (0.4, 0.5, 0.85, 0.99)] == [0, 1, 2, 1500]
    assert (total.exchange_s, total.total_s) == (2.5, 10.0)
    assert total.count_above(1) == 3


def test_events_of_several_tasks_change_the_same_as_one_event_for_each() -> None:
    tasks = [TaskRef(purpose=Purpose.TRAIN, number=number) for number in range(3)]
    taken = tuple(events.TaskTaken(task=task, dispatch=1, attempt=1, reply=f"r{task.number}") for task in tasks)
    finished = tuple(
        events.TaskFinished(task=task, dispatch=1, attempt=1, batches=5, records=50, loss_sum=0.5, counted=((0, 5),))
        for task in tasks
    )
    together, single = Driver(job_spec(workers=1)), Driver(job_spec(workers=1))
    grouped: list[events.Event] = [events.TasksTaken(taken=taken), events.TasksFinished(finished=finished)]
    each_alone: list[events.Event] = [*taken, *finished]
    for driver, several in ((together, grouped), (single, each_alone)):
        driver.start_all()
        for event in several:
            driver.feed(event, Service.WORKER, "worker-0", driver.incarnation("worker-0"))
        driver.check_replay()
    assert together.state.running_attempts == single.state.running_attempts == {}
    for driver in (together, single):
        assert driver.state.training is not None
        (epoch,) = driver.state.training.statistics.epochs.values()
        assert (epoch.tasks, epoch.batches, epoch.records, epoch.loss_sum) == (3, 15, 150, 1.5)
