"""Losses, metrics, batches and records of an epoch: every reported batch counts once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.unit.master.driver import Driver, job_spec

from elasticdl.master.core.training.staleness import StalenessTotals
from elasticdl.master.core.training.statistics import EpochTotals
from elasticdl.master.core.training.stored_states import EpochStates
from elasticdl.master.core.training.task_messages import task_messages
from elasticdl.shared.job.spec import Limits
from elasticdl.shared.job.tasks import EPOCH_METRICS, EPOCH_SUM, MetricStates, TaskMessage, TaskRef
from elasticdl.shared.messages import commands, events
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


def stored(driver: Driver) -> EpochStates:
    return totals(driver).stored


def merges(driver: Driver) -> list[TaskMessage]:
    return [message for each in driver.take(commands.Dispatch) for message in task_messages(driver.state, each, 1)]


def removed(driver: Driver) -> list[tuple[tuple[str, ...], tuple[tuple[int, int], ...]]]:
    return [(each.groups, each.numbers) for each in driver.take(commands.RemoveStates)]


def finish_stored(driver: Driver, task: int, *numbers: int, counted: tuple[int, int] = (0, 5), **details: Any) -> None:
    batches = counted[1] - counted[0]
    driver.finish(task, batches=batches, records=10 * batches, stored_states=numbers, counted=(counted,), **details)


def merge_result(driver: Driver, message: TaskMessage, **details: Any) -> None:
    event = events.TaskFinished(task=message.task, dispatch=message.dispatch, attempt=1, **details)
    driver.feed(event, Service.WORKER, "worker-0", driver.incarnation("worker-0"))


@pytest.fixture
def summing() -> Iterator[Driver]:
    """Four stored states of an epoch are replaced by their sum."""
    driver = Driver(job_spec(workers=1, limits=Limits(stored_states_max=4)))
    driver.start_all()
    driver.take(commands.Dispatch)
    yield driver
    driver.check_replay()


def test_many_stored_states_are_replaced_by_their_sum_and_removed_after_it(summing: Driver) -> None:
    for task in range(5):
        finish_stored(summing, task, 10 + task)
    (message,) = merges(summing)
    assert (message.label, message.evaluation, message.stored_states) == (EPOCH_SUM, 0, (10, 11, 12, 13))
    assert removed(summing) == []
    merge_result(summing, message, stored_states=(20,))
    assert list(stored(summing).complete) == [14, 20]
    assert removed(summing) == [((), ((10, 14),))]
    assert not summing.state.merges, "an epoch may have thousands of sums"
    merge_result(summing, message, stored_states=(21,))
    assert removed(summing) == [((), ((21, 22),))], "the second result of a sum does not count"


def test_the_metrics_of_an_epoch_wait_for_a_sum_and_then_all_its_states_are_removed(summing: Driver) -> None:
    for task in range(20):
        finish_stored(summing, task, 10 + task)
    first, *others = merges(summing)
    assert (first.stored_states, others) == ((10, 11, 12, 13), [])
    merge_result(summing, first, stored_states=(40,))
    (last,) = merges(summing)
    assert (last.label, last.stored_states) == ("epoch", (*range(14, 30), 40))
    assert last.task.number > first.task.number
    removed(summing)
    merge_result(summing, last, results={"auc": 0.5})
    assert (totals(summing).results, bool(stored(summing))) == ({"auc": 0.5}, False)
    assert removed(summing) == [(("epoch-0",), ())]
    finish_stored(summing, 0, 50)
    assert removed(summing) == [((), ((50, 51),))], "states that come too late"


def test_states_of_a_part_of_a_task_are_not_summed_because_others_may_replace_them(summing: Driver) -> None:
    finish_stored(summing, 0, 10, counted=(3, 5))
    for task in (1, 2, 3):
        finish_stored(summing, task, 10 + task)
    assert merges(summing) == []
    finish_stored(summing, 0, 14)
    assert removed(summing) == [((), ((10, 11),))]
    (message,) = merges(summing)
    assert message.stored_states == (11, 12, 13, 14)


def test_a_larger_report_does_not_remove_states_that_a_worker_is_merging(summing: Driver) -> None:
    finish_stored(summing, 0, 10, counted=(3, 5))
    for task in range(1, 20):
        finish_stored(summing, task, 10 + task)
    (first,) = merges(summing)
    merge_result(summing, first, stored_states=(40,))
    (last,) = merges(summing)
    assert last.label == EPOCH_METRICS and 10 in last.stored_states
    removed(summing)
    finish_stored(summing, 0, 50)
    assert removed(summing) == [((), ((50, 51),))]
    assert set(last.stored_states) == set(stored(summing).numbers)
    merge_result(summing, last, results={"auc": 0.5})
    assert removed(summing) == [(("epoch-0",), ())]


def test_a_larger_report_counts_again_after_a_resume_has_ended_the_merge(summing: Driver) -> None:
    finish_stored(summing, 0, 10, counted=(3, 5))
    for task in range(1, 20):
        finish_stored(summing, task, 10 + task)
    (first,) = merges(summing)
    merge_result(summing, first, stored_states=(40,))
    summing.feed(events.JobResumed(reason="resume"), Service.LAUNCHER, "second")
    assert not totals(summing).is_merging


def test_states_in_several_parts_are_summed_when_that_makes_fewer(summing: Driver) -> None:
    for task in range(3):
        finish_stored(summing, task, *range(10 * task, 10 * task + 5))
    assert merges(summing) == []
    finish_stored(summing, 3, *range(30, 35))
    (message,) = merges(summing)
    assert len(message.stored_states) == 20


def test_a_resume_sums_again_what_a_worker_was_summing(summing: Driver) -> None:
    for task in range(4):
        finish_stored(summing, task, 10 + task)
    merges(summing)
    summing.feed(events.JobResumed(reason="resume"), Service.LAUNCHER, "second")
    summing.feed(events.TermStarted(term=2), Service.MASTER, "master.2")
    assert list(stored(summing).complete) == [10, 11, 12, 13]
    summing.start_all()
    again = [message for message in merges(summing) if message.label == EPOCH_SUM]
    assert [message.stored_states for message in again] == [(10, 11, 12, 13)]


def test_a_removal_that_failed_is_decided_again(summing: Driver) -> None:
    finish_stored(summing, 0, 10)
    finish_stored(summing, 0, 11)
    assert removed(summing) == [((), ((11, 12),))]
    seq, _ = summing.state.pending_commands[-1]
    failed = events.CommandsRan(up_to=seq, failures=(events.CommandFailure(position=0, message="NATS is away"),))
    summing.feed(failed, Service.MASTER, "master")
    assert removed(summing) == [((), ((11, 12),))]


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
