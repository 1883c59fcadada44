"""Losses, metrics, batches and records of an epoch: every reported batch counts once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.master.driver import Driver, job_spec, plan

from elasticdl.master.core.training.staleness import StalenessTotals
from elasticdl.master.core.training.statistics import EpochTotals, TrainingStatistics
from elasticdl.master.core.training.task_messages import task_messages
from elasticdl.shared.job.tasks import EPOCH_METRICS, TaskMessage, TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Tasks of 5 batches with 10 records each, 20 tasks an epoch."""
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    yield driver
    driver.check_replay()


def finish(driver: Driver, task: int, *counted: tuple[int, int], loss: float = 1.0, **details: Any) -> None:
    """A worker finishes a task; all its batches had this loss."""
    batches = sum(end - start for start, end in counted)
    driver.finish(
        task,
        batches=batches,
        records=10 * batches,
        loss_sum=loss * batches,
        counted=counted,
        **details,
    )


def give_back(
    driver: Driver, task: int, *counted: tuple[int, int], loss: float = 1.0, staleness: Mapping[int, int] | None = None
) -> None:
    """As ``finish``, of what was done of a task before it was returned."""
    batches = sum(end - start for start, end in counted)
    event = events.TaskReturned(
        task=TaskRef(purpose=Purpose.TRAIN, number=task),
        dispatch=1,
        attempt=1,
        reason="SIGTERM",
        records=10 * batches,
        loss_sum=loss * batches,
        counted=counted,
        staleness=staleness or {},
    )
    driver.feed(event, Service.WORKER, "worker-0", driver.incarnation("worker-0"))


def totals(driver: Driver, epoch: int = 0) -> EpochTotals:
    assert driver.state.training is not None
    return driver.state.training.epochs[epoch]


def known(driver: Driver) -> tuple[int, int, float]:
    """Batches, records and sum of losses of the first epoch."""
    of = totals(driver)
    return of.batches, of.records, of.loss_sum


def test_a_repeated_task_adds_nothing_to_the_statistics(driver: Driver) -> None:
    finish(driver, 0, (0, 5))
    driver.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    driver.start_pod("ps-0")
    finish(driver, 0, (0, 5), loss=9.0)
    finish(driver, 0, (2, 5), loss=9.0)
    assert known(driver) == (5, 50, 5.0)
    assert totals(driver).tasks == 1


def test_a_returned_task_counts_together_with_the_rest_from_another_worker(driver: Driver) -> None:
    give_back(driver, 0, (0, 2), loss=3.0)
    assert known(driver) == (2, 20, 6.0)
    finish(driver, 0, (2, 5))
    assert known(driver) == (5, 50, 9.0)
    give_back(driver, 0, (0, 2), loss=3.0)
    assert known(driver) == (5, 50, 9.0)


def test_a_report_that_overlaps_an_earlier_one_is_left_out(driver: Driver) -> None:
    finish(driver, 0, (3, 5), loss=3.0)  # A killed worker had computed the others.
    give_back(driver, 0, (2, 4), loss=9.0)
    finish(driver, 0, (0, 5))
    assert known(driver) == (2, 20, 6.0)


def test_a_result_without_batches_starts_no_epoch(driver: Driver) -> None:
    finish(driver, 20)
    give_back(driver, 20)
    assert driver.state.training is not None
    assert not driver.state.training.epochs


def test_the_loss_of_an_epoch_is_the_metric_once_it_is_merged() -> None:
    of = EpochTotals(batches=4, reported=2, loss_sum=3.0)
    assert of.loss == 1.5
    of.results = {"loss": 1.25}
    assert of.loss == 1.25


def test_staleness_is_summed_by_worker(driver: Driver) -> None:
    finish(driver, 0, (0, 5), staleness={0: 3, 2: 2}, times=Times.of({"pull": 1.0, "wait": 0.5, "compute": 4.5}))
    driver.feed(events.ScaleRequested(workers=2), Service.CLIENT, "client")
    driver.start_pod("worker-1")
    finish(driver, 1, (0, 5), worker="worker-1", staleness={1500: 1}, times=Times.of({"push": 1.0, "compute": 3.0}))
    give_back(driver, 2, (0, 1), staleness={1: 1})
    assert driver.state.training is not None
    by_worker = driver.state.training.statistics.staleness
    assert by_worker[PodName("worker-0")].batches == {0: 3, 1: 1, 2: 2}
    total = StalenessTotals.of_all(by_worker.values())
    assert (total.count, total.mean, total.largest) == (7, 215.0, 1500)
    assert [total.quantile(share) for share in (0.4, 0.5, 0.85, 0.99)] == [0, 1, 2, 1500]
    assert (total.exchange_s, total.total_s) == (2.5, 10.0)
    assert total.count_above(1) == 3


REPORTS = st.tuples(st.booleans(), st.integers(0, 59), st.integers(0, 5), st.integers(0, 6))
"""Whether a task is finished or returned, its number, and which of its batches were computed: from, until."""


@given(st.lists(st.one_of(REPORTS, st.tuples(st.integers(0, 2), st.integers(0, 100)))))
def test_the_sums_of_a_job_are_those_of_its_epochs(reports: list[Any]) -> None:
    """Also where reports overlap or repeat others, come late, or are of batches that do not exist."""
    of, work = TrainingStatistics(), plan(epochs=3)
    for number, report in enumerate(reports, 1):
        match report:
            case (epoch, batches):
                merge = TaskRef(purpose=Purpose.MERGE, number=epoch)
                merged = events.TaskFinished(task=merge, dispatch=1, attempt=1, batches=batches, records=10 * batches)
                of.merge(epoch, merged, float(number), work)
            case (is_finished, task, start, end):
                counted = ((start, end),) if start < end else ()
                computed, ref = max(0, end - start), TaskRef(purpose=Purpose.TRAIN, number=task)
                facts = {"task": ref, "dispatch": 1, "attempt": 1, "records": 10 * computed, "counted": counted}
                event = (
                    events.TaskFinished(**facts, batches=computed)
                    if is_finished
                    else events.TaskReturned(**facts, reason="SIGTERM")
                )
                worker, incarnation = PodName("worker-0"), Incarnation("worker-0.1")
                envelope = Envelope(
                    service=Service.WORKER,
                    name=worker,
                    incarnation=incarnation,
                    number=number,
                    time_s=float(number),
                    event=event,
                )
                of.add(event, envelope, work)
        epochs = of.epochs.values()
        assert of.batches == sum(each.batches for each in epochs)
        assert of.records == sum(each.records for each in epochs)


def merges(driver: Driver) -> list[TaskMessage]:
    return [message for each in driver.take(commands.Dispatch) for message in task_messages(driver.state, each, 1)]


def removed(driver: Driver) -> list[tuple[tuple[str, ...], tuple[tuple[int, int], ...]]]:
    return [(each.groups, each.numbers) for each in driver.take(commands.RemoveStates)]


def merge_result(driver: Driver, message: TaskMessage, **details: Any) -> None:
    event = events.TaskFinished(task=message.task, dispatch=message.dispatch, attempt=1, **details)
    driver.feed(event, Service.WORKER, "worker-0", driver.incarnation("worker-0"))


EPOCH = 20
"""Tasks of an epoch."""


@pytest.fixture
def epochs() -> Iterator[Driver]:
    """A job of three epochs."""
    driver = Driver(job_spec(plan(epochs=3), workers=1))
    driver.computes_metrics = False
    driver.start_all()
    driver.take(commands.Dispatch)
    yield driver
    driver.check_replay()


def finish_epoch(driver: Driver, epoch: int) -> None:
    """All tasks of an epoch are finished; of half of them a killed worker has not said what it computed."""
    for task in range(epoch * EPOCH, (epoch + 1) * EPOCH):
        finish(driver, task, *([(0, 5)] if task % 2 else []))


def epoch_merges(driver: Driver) -> list[TaskMessage]:
    return [message for message in merges(driver) if message.label == EPOCH_METRICS]


def test_the_metrics_of_an_epoch_are_those_that_a_worker_reads_from_the_ps(epochs: Driver) -> None:
    finish_epoch(epochs, 0)
    assert (totals(epochs).batches, totals(epochs).merged) == (50, False)
    (message,) = epoch_merges(epochs)
    assert (message.evaluation, message.states, message.stored_states) == (0, {}, ())
    merge_result(epochs, message, results={"loss": 0.5, "auc": 0.75}, batches=100, records=1000)
    assert known(epochs) == (100, 1000, 50.0)
    assert (totals(epochs).loss, totals(epochs).results["auc"]) == (0.5, 0.75)
    finish(epochs, 0, (0, 5))
    assert known(epochs)[:2] == (100, 1000), "a late report"


def test_an_epoch_of_which_nothing_was_reported_has_its_metrics_all_the_same(epochs: Driver) -> None:
    for task in range(EPOCH):
        finish(epochs, task)
    (message,) = epoch_merges(epochs)
    merge_result(epochs, message, results={"loss": 0.5}, batches=100, records=1000)
    assert (known(epochs), totals(epochs).loss) == ((100, 1000, 0.0), 0.5)


def test_the_metrics_of_epochs_are_computed_in_order_one_at_a_time(epochs: Driver) -> None:
    finish_epoch(epochs, 1)
    assert epoch_merges(epochs) == []
    finish_epoch(epochs, 0)
    (first,) = epoch_merges(epochs)
    assert first.evaluation == 0
    merge_result(epochs, first, results={"loss": 0.5}, batches=100, records=1000)
    (second,) = epoch_merges(epochs)
    assert second.evaluation == 1
    merge_result(epochs, first, results={"loss": 9.0}, batches=1, records=1)
    assert totals(epochs).loss == 0.5, "the second result does not count"


def give_merge_back(driver: Driver, message: TaskMessage) -> None:
    event = events.TaskReturned(task=message.task, dispatch=message.dispatch, attempt=1, reason="a ps lacks batches")
    driver.feed(event, Service.WORKER, "worker-0", driver.incarnation("worker-0"))


def test_a_merge_that_a_worker_returns_is_dispatched_again_once_the_ps_have_the_epoch(epochs: Driver) -> None:
    finish_epoch(epochs, 0)
    (first,) = epoch_merges(epochs)
    epochs.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    epochs.start_pod("ps-0")
    give_merge_back(epochs, first)
    assert epoch_merges(epochs) == [], "ps-0 lacks batches"
    finish_epoch(epochs, 0)
    (second,) = epoch_merges(epochs)
    assert (second.evaluation, second.task == first.task) == (0, False)
    merge_result(epochs, second, results={"loss": 0.5}, batches=100, records=1000)
    merge_result(epochs, first, results={"loss": 9.0}, batches=1, records=1)
    assert (totals(epochs).loss, known(epochs)[:2]) == (0.5, (100, 1000)), "the first result counts"


def test_a_pause_does_not_count_for_an_epoch_whose_last_report_was_lost(epochs: Driver) -> None:
    finish_epoch(epochs, 0)
    (message,) = epoch_merges(epochs)
    merge_result(epochs, message, results={"loss": 0.5}, batches=100, records=1000)
    before = (totals(epochs).started_s, totals(epochs).ended_s)
    totals(epochs).tasks -= 1
    assert epochs.state.training is not None
    epochs.state.training.statistics.exclude_pause(3600.0, EPOCH)
    assert (totals(epochs).started_s, totals(epochs).ended_s) == before
    totals(epochs).tasks += 1


def test_after_a_resume_an_open_merge_is_dispatched_again(epochs: Driver) -> None:
    finish_epoch(epochs, 0)
    assert len(epoch_merges(epochs)) == 1
    epochs.feed(events.JobResumed(reason="resume"), Service.LAUNCHER, "second")
    epochs.feed(events.TermStarted(term=2), Service.MASTER, "master.2")
    epochs.start_all()
    finish_epoch(epochs, 0)
    assert [message.evaluation for message in epoch_merges(epochs)] == [0]


def test_a_removal_that_failed_is_decided_again(driver: Driver) -> None:
    late = TaskMessage(task=TaskRef(purpose=Purpose.MERGE, number=99), dispatch=1, term=1)
    merge_result(driver, late, stored_states=(11,))
    assert removed(driver) == [((), ((11, 12),))]
    seq, _ = driver.state.pending_commands[-1]
    failed = events.CommandsRan(up_to=seq, failures=(events.CommandFailure(position=0, message="NATS is away"),))
    driver.feed(failed, Service.MASTER, "master")
    assert removed(driver) == [((), ((11, 12),))]


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
