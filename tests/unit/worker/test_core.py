"""The worker's core between lanes that answer in any order, ledgers that are restored, and a queue that redelivers."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.unit.worker.core_lanes import PLAN, Lanes

from elasticdl.shared.errors import ElasticDLError, NoSpaceError, TransientError, UserError
from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import (
    RoundDelayed,
    StopRequested,
    TaskFailed,
    TaskFinished,
    TaskReturned,
    WorkerFailed,
    WorkerStopped,
)
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_REFUSED
from elasticdl.shared.process.procedures import Issued
from elasticdl.worker.core import BatchRef, commands, events
from elasticdl.worker.core.round_wait import RoundWait


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_a_plan_is_trained_and_its_tasks_are_acknowledged(staleness: int, prefetch: int) -> None:
    lanes = Lanes(staleness=staleness, prefetch=prefetch)
    for task in PLAN.task_ids():
        lanes.deliver(Purpose.TRAIN, task)
    lanes.run(lambda: lanes.is_trained and not lanes.leases)
    assert [event.task.number for event in lanes.of(TaskFinished)] == [0, 1, 2]


@pytest.mark.parametrize("cohort", [1, 2, 3])
@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_one_worker_trains_all_tasks_of_a_cohort_side_by_side(cohort: int, prefetch: int) -> None:
    lanes = Lanes(prefetch=prefetch, cohort=cohort)
    for task in reversed(list(PLAN.task_ids())):
        lanes.deliver(Purpose.TRAIN, task)
    lanes.run(lambda: lanes.is_trained and not lanes.leases)
    assert sorted(event.task.number for event in lanes.of(TaskFinished)) == [0, 1, 2]


@pytest.mark.parametrize("prefetch", [1, 2])
def test_batches_of_later_rounds_never_keep_an_earlier_one_from_being_read(prefetch: int) -> None:
    lanes = Lanes(prefetch=prefetch, cohort=1)
    for task in (1, 2, 0):
        lanes.deliver(Purpose.TRAIN, task)

    def task_0_is_trained() -> bool:
        if lanes.groups[0].step:
            lanes.queue.clear()  # Other workers take what this one returned.
        return lanes.groups[0].step == 3

    lanes.run(task_0_is_trained)
    assert [event.task.number for event in lanes.of(TaskReturned)] == [2]


def test_a_worker_that_waits_for_a_round_goes_back_with_a_restored_ps() -> None:
    lanes = Lanes(cohort=1)
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: lanes.groups[0].step == 1)
    lanes.groups = [Ledger(), Ledger()]
    lanes.run(lambda: lanes.groups[0].step == 3)
    assert lanes.next_batch(TaskId(0), 3) == 3


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_worker_drops_tasks_that_a_restored_ps_needs_much_later(batches: int) -> None:
    """They would stand in the queue before those that come first, and a wait would precede each of these."""
    plan = replace(PLAN, epochs=12, minibatches_per_task=batches)
    lanes, last = Lanes(plan=plan, cohort=1, patience_s=3600.0), 8
    for task in range(last):
        lanes.deliver(Purpose.TRAIN, task)
    lanes.run(lambda: lanes.groups[0].has_all(0, last - 1))
    lanes.groups = [Ledger(), Ledger()]
    for task in (last, last + 1, *range(last + 2)):  # The rest of the window; and the master dispatches all in order.
        lanes.deliver(Purpose.TRAIN, task)
    lanes.run(lambda: lanes.groups[0].has_all(0, last + 2) and not lanes.leases)
    assert lanes.of(TaskReturned)
    assert all(event.is_dropped and event.task.number >= 4 for event in lanes.of(TaskReturned))


@pytest.mark.parametrize("prefetch", [1, 2, 5])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_worker_that_need_not_wait_returns_no_task(batches: int, prefetch: int) -> None:
    plan = replace(PLAN, epochs=4, minibatches_per_task=batches)
    lanes = Lanes(plan=plan, prefetch=prefetch, cohort=1, patience_s=3600.0)
    for task in plan.task_ids():
        lanes.deliver(Purpose.TRAIN, task)
    lanes.run(lambda: lanes.is_trained and not lanes.leases)
    assert lanes.of(TaskReturned) == []


def test_a_worker_that_waits_for_a_round_does_not_ask_an_empty_queue_without_a_pause() -> None:
    lanes = Lanes(prefetch=1, cohort=2)
    waits: list[float] = []
    lanes.deliver(Purpose.TRAIN, 2)  # The last one of the epoch; nothing need wait for a task after it.
    for _ in range(100):
        waits += [one.wait_s for one in lanes.lanes[commands.QUEUE] if isinstance(one, commands.TakeTasks)]
        for lane in commands.LANES:
            lanes.step(lane)
        if "pull again" in lanes.timers:
            lanes.fire("pull again")
    assert len(waits) > 10
    assert 0.0 not in waits


def test_a_step_that_needs_the_others_of_its_round_waits_for_them_like_a_pull() -> None:
    lanes = Lanes(cohort=2)
    lanes.given_up = [0, 1, 1]
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: not lanes.given_up[2:])
    assert len(lanes.groups[0].record().open) == 0, "nothing is pushed for a step that was given up"
    lanes.deliver(Purpose.TRAIN, 1)
    lanes.run(lambda: lanes.groups[0].step == 6)
    assert lanes.given_up == []
    assert lanes.of(TaskFailed) == []


def test_a_worker_that_waits_for_a_slow_one_tells_the_master_once_per_wait() -> None:
    lanes = Lanes(cohort=2)
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: lanes.groups[0].step == 1)
    lanes.advance(0.0)
    lanes.advance(2.9)
    assert lanes.of(RoundDelayed) == []
    lanes.advance(0.2)
    (delayed,) = lanes.of(RoundDelayed)
    assert (delayed.task.number, delayed.batch) == (0, 1)
    lanes.deliver(Purpose.TRAIN, 1)
    lanes.run(lambda: lanes.groups[0].step == 6)
    assert len(lanes.of(RoundDelayed)) == 1, "it trains both tasks now"


def test_a_worker_that_computes_slowly_itself_waits_longer() -> None:
    wait = RoundWait(Rounds(plan=PLAN, tasks_per_cohort=2), patience_s=0.0, straggler_s=3.0)
    wait.on_computed(2.0)
    wait.on_computed(4.0)
    wait.on_incomplete(BatchRef(task=TaskRef(purpose=Purpose.TRAIN, number=0), batch=1), now_s=10.0)
    assert not wait.reports_delay(18.9)
    assert wait.reports_delay(19.1)
    assert not wait.reports_delay(30.0)


def test_a_stop_pushes_the_running_batch_and_returns_the_task() -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: any(isinstance(command, commands.ComputeBatch) for command in lanes.lanes[commands.COMPUTE]))
    lanes.post(events.StopRequested(reason="SIGTERM"))
    lanes.run(lambda: lanes.exit_code is not None)
    assert [group.step for group in lanes.groups] == [1, 1]
    (returned,) = lanes.of(TaskReturned)
    assert (returned.reason, returned.counted) == ("SIGTERM", ((0, 1),))
    assert isinstance(lanes.published[-1], WorkerStopped)
    assert (lanes.exit_code, len(lanes.queue), lanes.leases) == (0, 1, {})


def test_a_step_that_hangs_is_abandoned_after_the_grace() -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: any(isinstance(command, commands.ComputeBatch) for command in lanes.lanes[commands.COMPUTE]))
    hanging, lanes.lanes[commands.COMPUTE] = lanes.lanes[commands.COMPUTE], deque()
    lanes.post(events.StopRequested(reason="SIGTERM"))
    assert not lanes.of(WorkerStopped)
    lanes.fire("stop grace")
    lanes.run(lambda: lanes.exit_code is not None)
    assert len(hanging) == 1
    assert lanes.of(TaskReturned)
    assert lanes.of(WorkerStopped)


def test_the_answer_to_a_push_after_the_task_was_returned_changes_nothing() -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: any(isinstance(command, commands.PushBatch) for command in lanes.lanes[commands.PS]))
    lanes.post(events.StopRequested(reason="SIGTERM"))
    lanes.fire("stop grace")
    lanes.run(lambda: lanes.exit_code is not None)
    assert len(lanes.of(TaskReturned)) == 1
    assert not lanes.of(TaskFinished)
    assert lanes.exit_code == 0


def test_leases_are_extended_only_while_the_batch_is_young() -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: lanes.lanes[commands.COMPUTE])
    lanes.fire("extend leases")
    assert len(lanes.lanes[commands.LEASES]) == 1
    lanes.now_s = 301.0
    lanes.fire("extend leases")
    assert len(lanes.lanes[commands.LEASES]) == 1


def test_a_worker_that_hangs_takes_no_tasks_until_its_step_ends() -> None:
    lanes = Lanes(prefetch=3)
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: lanes.lanes[commands.COMPUTE] and lanes.core.training.needs_task)
    lanes.lanes[commands.QUEUE].clear()
    lanes.now_s = 301.0
    lanes.post(events.QueueEmpty())
    assert not lanes.lanes[commands.QUEUE]
    lanes.run(lambda: lanes.lanes[commands.QUEUE])
    assert any(isinstance(command, commands.TakeTasks) for command in lanes.lanes[commands.QUEUE])


@pytest.mark.parametrize(
    ("error", "event", "exit_code"),
    [
        (UserError("another model"), WorkerFailed, EXIT_REFUSED),
        (TransientError("ps-0 is away"), WorkerStopped, EXIT_AWAY),
    ],
)
def test_a_worker_that_can_not_continue_says_why(error: Any, event: type[Any], exit_code: int) -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: lanes.lanes[commands.COMPUTE])
    lanes.post(events.ExecutionFailed(error=error))
    lanes.run(lambda: lanes.exit_code is not None)
    assert (lanes.exit_code, lanes.exit_reason) == (exit_code, str(error))
    assert lanes.of(event)


def test_a_worker_whose_output_is_full_stops_the_job_and_returns_its_task() -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.EXPORT, 0, files=("a", "b"))
    lanes.run(lambda: lanes.lanes[commands.COMPUTE])
    issued = lanes.lanes[commands.COMPUTE].popleft()
    error = NoSpaceError("disk full: /output can't be written")
    lanes.post(events.CommandFailed(number=issued.number, error=error))
    lanes.run(lambda: lanes.exit_code is not None)
    assert lanes.exit_code == 0
    assert [event.reason for event in lanes.of(StopRequested)] == [str(error)]
    assert not lanes.of(WorkerFailed) and not lanes.of(TaskFinished)
    assert lanes.of(WorkerStopped) and [event.reason for event in lanes.of(TaskReturned)] == [str(error)]


def test_an_evaluation_runs_between_two_batches() -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: lanes.groups[0].step == 1)
    lanes.deliver(Purpose.EVALUATE, 4, evaluation=7)
    lanes.run(lambda: len(lanes.of(TaskFinished)) == 2)
    evaluated = next(event for event in lanes.of(TaskFinished) if event.task.purpose is Purpose.EVALUATE)
    assert (evaluated.batches, evaluated.counted) == (3, ())


def test_a_batch_of_an_evaluation_that_can_not_be_read_waits_for_the_one_that_is_computed() -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.EVALUATE, 4, evaluation=7)
    lanes.run(lambda: any(isinstance(one, commands.EvaluateBatch) for one in lanes.lanes[commands.COMPUTE]))
    lanes.run(lambda: lanes.lanes[commands.INPUT])
    lanes.step(commands.INPUT, fails=True)
    assert not lanes.of(TaskFailed)
    lanes.run(lambda: lanes.of(TaskFailed))
    assert [event.batch for event in lanes.of(TaskFailed)] == [1]


def test_a_prediction_is_written_before_it_is_reported() -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.PREDICT, 4)
    lanes.run(lambda: any(isinstance(each, Issued) for each in lanes.lanes[commands.COMPUTE]))
    assert not lanes.of(TaskFinished)
    lanes.run(lambda: lanes.of(TaskFinished))
    (finished,) = lanes.of(TaskFinished)
    assert (finished.records, finished.batches, finished.file, finished.states) == (6, 3, "4-1", {})


@pytest.mark.parametrize(
    ("error", "event"),
    [(TransientError("storage is away"), TaskReturned), (UserError("CSV can't hold it"), TaskFailed)],
)
def test_predictions_that_can_not_be_written_are_not_reported(error: ElasticDLError, event: type) -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.PREDICT, 4)
    lanes.run(lambda: any(isinstance(each, Issued) for each in lanes.lanes[commands.COMPUTE]))
    issued = lanes.lanes[commands.COMPUTE].popleft()
    lanes.post(events.CommandFailed(number=issued.number, error=error))
    lanes.run(lambda: lanes.of(event))
    assert not lanes.of(TaskFinished)
    lanes.run(lambda: lanes.of(TaskFinished))  # The next delivery computes every batch again.


def test_the_files_that_count_are_published_by_an_export_task() -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.EXPORT, 0, files=("a", "b"))
    lanes.run(lambda: lanes.lanes[commands.COMPUTE])
    assert lanes.lanes[commands.COMPUTE][0].command == commands.PublishPredictions(files=("a", "b"))
    lanes.run(lambda: lanes.of(TaskFinished))


def test_an_evaluation_without_data_is_returned() -> None:
    lanes = Lanes(validation=False)
    lanes.deliver(Purpose.EVALUATE, 4, evaluation=7)
    lanes.run(lambda: lanes.of(TaskReturned))
    assert lanes.of(TaskReturned)[0].reason == "the job has no validation data"


class AnyOrder(RuleBasedStateMachine):
    """Lanes advance in any order while ledgers are restored, tasks are delivered twice, and batches fail."""

    lanes: Lanes

    @initialize(staleness=st.integers(0, 1), prefetch=st.integers(1, 3), cohort=st.sampled_from([None, None, 1, 2, 3]))
    def begin(self, staleness: int, prefetch: int, cohort: int | None) -> None:
        self.lanes = Lanes(staleness=staleness, prefetch=prefetch, cohort=cohort)
        self.snapshots = [group.copy() for group in self.lanes.groups]
        for task in PLAN.task_ids():
            self.lanes.deliver(Purpose.TRAIN, task)

    @rule(lane=st.sampled_from(commands.LANES))
    def advance(self, lane: str) -> None:
        self.lanes.step(lane)

    @rule(lane=st.sampled_from([commands.COMPUTE, commands.INPUT]))
    def fail(self, lane: str) -> None:
        if self.lanes.lanes[lane] and isinstance(
            self.lanes.lanes[lane][0], (commands.ReadBatch, commands.ComputeBatch)
        ):
            self.lanes.step(lane, fails=True)

    @rule(purpose=st.sampled_from(list(Purpose)))
    def deliver(self, purpose: Purpose) -> None:
        if len(self.lanes.queue) < 4:
            self.lanes.deliver(purpose, 1, evaluation=1)

    @rule(group=st.integers(0, 1))
    def snapshot(self, group: int) -> None:
        self.snapshots[group] = self.lanes.groups[group].copy()

    @rule(group=st.integers(0, 1))
    def restore(self, group: int) -> None:
        self.lanes.groups[group] = self.snapshots[group].copy()

    @precondition(lambda self: self.lanes.timers)
    @rule(data=st.data())
    def fire(self, data: st.DataObject) -> None:
        self.lanes.fire(data.draw(st.sampled_from(sorted(self.lanes.timers))))

    def teardown(self) -> None:
        """Undisturbed, what is missing is trained once it is dispatched; then the worker stops and keeps nothing."""
        if not hasattr(self, "lanes"):
            return
        lanes = self.lanes
        for _ in range(3):
            lanes.run(lambda: not lanes.queue and not lanes.leases)
            for task in PLAN.task_ids():
                lanes.deliver(Purpose.TRAIN, task)
        lanes.run(lambda: lanes.is_trained)
        lanes.post(events.StopRequested(reason="SIGTERM"))
        lanes.run(lambda: lanes.exit_code is not None)
        assert lanes.exit_code == 0
        assert not lanes.leases
        assert not lanes.pulled
        answered = len(lanes.of(TaskFinished)) + len(lanes.of(TaskReturned)) + len(lanes.of(TaskFailed))
        assert answered <= lanes.deliveries


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def test_new_tasks_begin_without_asking_how_far_they_are() -> None:
    lanes = Lanes()
    lanes.deliver(Purpose.TRAIN, 0)
    lanes.run(lambda: bool(lanes.lanes[commands.INPUT]))
    assert not [one for one in lanes.lanes[commands.PS] if isinstance(one, Issued)]
    assert [one.ref.batch for one in lanes.lanes[commands.INPUT]] == [0, 1]
