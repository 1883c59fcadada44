"""The worker's core between lanes that answer in any order, ledgers that are restored, and a queue that redelivers."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import (
    FailureKind,
    TaskFailed,
    TaskFinished,
    TaskReturned,
    WorkerFailed,
    WorkerStopped,
)
from elasticdl.shared.names import Incarnation, PodName, Purpose, TaskId
from elasticdl.shared.process.core_runner import SetTimer, TimerFired
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_REFUSED
from elasticdl.shared.process.procedures import Issued
from elasticdl.worker.core import BatchRef, CoreSettings, PipelineSettings, WorkerCore, commands, events
from elasticdl.worker.core.leased_tasks import LeasedTask
from elasticdl.worker.failures import Failure
from elasticdl.worker.ps_client.requests import PushOutcome, TaskProgress

PLAN = Plan(
    sources=(Source(uri="memory://data", size_bytes=18, etag="1", records=18),),
    minibatch_size=2,
    minibatches_per_task=3,
    epochs=1,
    shuffle=Shuffle.NONE,
    seed=1,
)
PS = {PodName("ps-0"): Incarnation("a")}
FAILURE = Failure(kind=FailureKind.USER_CODE, message="feed() raised ValueError")


class Lanes:
    """Executes commands one at a time, in the order of each lane, against two ledgers and a queue."""

    def __init__(
        self, *, staleness: int = 0, prefetch: int = 2, validation: bool = True, cohort: int | None = None
    ) -> None:
        pipeline = PipelineSettings(staleness=staleness, prefetch_batches=prefetch)
        self.rounds = Rounds(plan=PLAN, tasks_per_cohort=cohort) if cohort else None
        self.core = WorkerCore(
            CoreSettings(
                plan=PLAN,
                validation=PLAN if validation else None,
                pipeline=replace(pipeline, staleness=0, is_admitted=True) if cohort else pipeline,
                failure_pause_s=0.0,
                rounds=self.rounds,
                round_patience_s=0.0,
            )
        )
        self.now_s = 0.0
        self.lanes: dict[str, deque[Any]] = {lane: deque() for lane in commands.LANES}
        self.timers: dict[str, float] = {}
        self.groups = [Ledger(), Ledger()]
        self.queue: deque[TaskMessage] = deque()
        self.leases: dict[int, TaskMessage] = {}
        self.published: list[Any] = []
        self.pulled: set[BatchRef] = set()
        self.deliveries = 0
        self.exit_code: int | None = None
        self.post(events.Started())

    def post(self, event: events.Event) -> None:
        for command in self.core.handle(event, self.now_s):
            if isinstance(command, SetTimer):
                self.timers[command.name] = command.due_s
            else:
                self.issue(command)
        self.core.check()

    def issue(self, command: commands.Command) -> None:
        if isinstance(command, commands.ReleaseBatch):
            in_use = [one.ref for one in self.lanes[commands.COMPUTE] if hasattr(one, "ref")]
            assert command.ref not in in_use, "released before the step"
        self.lanes[commands.lane_of(command)].append(command)

    def step(self, lane: str, **how: Any) -> bool:
        """Execute the next command of a lane; whether there was one."""
        if not self.lanes[lane] or self.exit_code is not None:
            return False
        command = self.lanes[lane].popleft()
        if isinstance(command, Issued):
            self.post(events.CommandDone(number=command.number, result=self.result(command.command)))
            return True
        event = self.event(command, **how)
        if event is not None:
            self.post(event)
        return True

    def result(self, command: commands.Step) -> Any:
        match command:
            case commands.AskProgress(task=task, batches=batches):
                return TaskProgress(next_batch=self.next_batch(task, batches), credits=PS)
            case commands.PublishEvent(event=event):
                self.published.append(event)
                return None
            case commands.ExportModel() | commands.SaveModel():
                return 1.0
            case _:
                return {}

    def event(self, command: Any, *, fails: bool = False) -> events.Event | None:
        match command:
            case commands.TakeTask():
                return self.take()
            case commands.AckTask(lease=lease):
                del self.leases[lease.number]
            case commands.NakTask(lease=lease):
                self.queue.append(self.leases.pop(lease.number))
            case commands.ReadBatch(ref=ref):
                failed = events.BatchFailed(ref=ref, failure=FAILURE)
                return failed if fails else events.BatchRead(ref=ref, records=2, is_empty=ref.batch == 1)
            case commands.PullBatch(ref=ref, pin=0) if not self.is_open(ref):
                return events.PullDelayed(ref=ref)
            case commands.PullBatch(ref=ref):
                self.pulled.add(ref)
                return events.BatchPulled(ref=ref)
            case commands.ComputeBatch(ref=ref):
                assert ref in self.pulled or ref.batch == 1, "computed without weights"
                return (
                    events.BatchFailed(ref=ref, failure=FAILURE) if fails else events.BatchComputed(ref=ref, loss=1.0)
                )
            case commands.EvaluateBatch(ref=ref):
                return events.BatchComputed(ref=ref, loss=1.0)
            case commands.PushBatch(ref=ref, pull=pull):
                return self.push(ref, pull)
            case commands.ReleaseBatch(ref=ref):
                self.pulled.discard(ref)
            case commands.Exit(exit_code=exit_code):
                self.exit_code = exit_code
        return None

    def take(self) -> events.Event:
        if not self.queue:
            return events.QueueEmpty()
        self.deliveries += 1
        message = self.leases[self.deliveries] = self.queue.popleft()
        return events.TaskDelivered(lease=LeasedTask(number=self.deliveries, message=message, attempt=1))

    def push(self, ref: BatchRef, pull: BatchRef | None) -> events.BatchPushed:
        task, batches = TaskId(ref.task.number), PLAN.batches_of(TaskId(ref.task.number))
        for group in self.groups:
            if self.rounds is None or self.rounds.is_open(group, task, ref.batch):
                group.absorb(task, ref.batch, batches, 2, 1)
        next_batch = self.next_batch(task, batches)
        has_pulled = pull is not None and next_batch == ref.batch + 1
        if pull is not None and has_pulled:
            self.pulled.add(pull)
        outcome = PushOutcome(next_batch=next_batch, credits=PS, step=1)
        return events.BatchPushed(ref=ref, outcome=outcome, has_pulled=has_pulled)

    def is_open(self, ref: BatchRef) -> bool:
        task = TaskId(ref.task.number)
        return self.rounds is None or all(self.rounds.is_open(group, task, ref.batch) for group in self.groups)

    def next_batch(self, task: TaskId, batches: int) -> int:
        return min(group.next_batch(task, batches) for group in self.groups)

    def fire(self, name: str) -> None:
        self.now_s = max(self.now_s, self.timers.pop(name))
        self.post(TimerFired(name=name, due_s=self.now_s))

    def run(self, until: Any, steps_max: int = 3000) -> None:
        """Execute commands, lane by lane, until a condition holds."""
        for _ in range(steps_max):
            if until():
                return
            moved = [self.step(lane) for lane in commands.LANES]
            if not any(moved) and "resume taking tasks" in self.timers:
                self.fire("resume taking tasks")
            if "pull again" in self.timers:
                self.fire("pull again")
        raise AssertionError(f"stuck: {self.lanes}, {self.published}")

    def deliver(self, purpose: Purpose, number: int, **facts: Any) -> None:
        task = TaskRef(purpose=purpose, number=number)
        self.queue.append(TaskMessage(task=task, dispatch=1, term=1, **facts))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.published if isinstance(event, kind)]

    @property
    def is_trained(self) -> bool:
        return all(not list(group.missing(PLAN.tasks)) for group in self.groups)


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
    assert any(isinstance(command, commands.TakeTask) for command in lanes.lanes[commands.QUEUE])


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
    assert lanes.exit_code == exit_code
    assert lanes.of(event)


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

    @rule(purpose=st.sampled_from([Purpose.TRAIN, Purpose.EVALUATE, Purpose.MERGE, Purpose.EXPORT]))
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
