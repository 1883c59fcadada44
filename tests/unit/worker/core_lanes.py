"""A worker's core with lanes that execute its commands against two ledgers and a queue."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import FailureKind, one_by_one
from elasticdl.shared.names import Incarnation, PodName, Purpose, TaskId
from elasticdl.shared.process.core_runner import SetTimer, TimerFired
from elasticdl.shared.process.procedures import Issued
from elasticdl.worker.core import BatchRef, CoreSettings, PipelineSettings, WorkerCore, commands, events
from elasticdl.worker.core.tasks.leased import LeasedTask
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
        self,
        *,
        plan: Plan = PLAN,
        staleness: int = 0,
        prefetch: int = 2,
        validation: bool = True,
        cohort: int | None = None,
        patience_s: float = 0.0,
    ) -> None:
        self.plan = plan
        pipeline = PipelineSettings(staleness=staleness, prefetch_batches=prefetch)
        self.rounds = Rounds(plan=plan, tasks_per_cohort=cohort) if cohort else None
        self.core = WorkerCore(
            CoreSettings(
                plan=plan,
                validation=plan if validation else None,
                pipeline=replace(pipeline, staleness=0, is_admitted=True) if cohort else pipeline,
                failure_pause_s=0.0,
                rounds=self.rounds,
                round_patience_s=patience_s,
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
        self.predicted: dict[TaskRef, list[int]] = {}
        """Task -> its batches that the present attempt has evaluated or predicted."""
        self.given_up: list[int] = []
        """Numbers of batches whose next step is given up, because it needs others of their round."""
        self.deliveries = 0
        self.delivered: set[TaskRef] = set()
        self.exit_code: int | None = None
        self.exit_reason = ""
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
            case commands.PublishEvents(events=several):
                self.published.extend(several)
                return None
            case commands.ExportModel() | commands.SaveModel() | commands.PublishPredictions():
                return 1.0
            case commands.WritePredictions(task=task):
                assert self.predicted.pop(task, None) == [0, 2], "batch 1 is empty, the others have to be predicted"
                return f"{task.number}-{self.deliveries}"
            case _:
                return {}

    def event(self, command: Any, *, fails: bool = False) -> events.Event | None:
        match command:
            case commands.TakeTasks(count=count):
                return self.take(count)
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
                return self.compute(ref, fails=fails)
            case commands.EvaluateBatch(ref=ref) | commands.PredictBatch(ref=ref):
                before = self.predicted.get(ref.task, ())
                self.predicted[ref.task] = [*(each for each in before if each < ref.batch), ref.batch]
                return events.BatchComputed(ref=ref, loss=1.0)
            case commands.PushBatch(ref=ref, pull=pull):
                return self.push(ref, pull)
            case commands.ReleaseBatch(ref=ref):
                self.pulled.discard(ref)
            case commands.Exit(exit_code=exit_code, reason=reason):
                self.exit_code, self.exit_reason = exit_code, reason
        return None

    def take(self, count: int) -> events.Event:
        if not self.queue:
            return events.QueueEmpty()
        leases = [self.lease(self.queue.popleft())]
        while len(leases) < count and self.queue and self.queue[0].task.purpose is Purpose.TRAIN:
            leases.append(self.lease(self.queue.popleft()))
        return events.TasksDelivered(leases=tuple(leases))

    def lease(self, message: TaskMessage) -> LeasedTask:
        self.deliveries += 1
        self.leases[self.deliveries] = message
        is_first = message.task not in self.delivered
        self.delivered.add(message.task)
        return LeasedTask(number=self.deliveries, message=message, attempt=1, is_first=is_first)

    def compute(self, ref: BatchRef, *, fails: bool) -> events.Event:
        assert ref in self.pulled or ref.batch == 1, "computed without weights"
        if ref.batch in self.given_up:
            self.given_up.remove(ref.batch)
            self.pulled.discard(ref)
            return events.PullDelayed(ref=ref)
        return events.BatchFailed(ref=ref, failure=FAILURE) if fails else events.BatchComputed(ref=ref, loss=1.0)

    def push(self, ref: BatchRef, pull: BatchRef | None) -> events.BatchPushed:
        task, batches = TaskId(ref.task.number), self.plan.batches_of(TaskId(ref.task.number))
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

    def advance(self, seconds: float) -> None:
        """Let time pass while the core waits for others."""
        self.now_s += seconds
        steps = iter(range(20))
        self.run(lambda: next(steps, None) is None)

    def deliver(self, purpose: Purpose, number: int, **facts: Any) -> None:
        task = TaskRef(purpose=purpose, number=number)
        self.queue.append(TaskMessage(task=task, dispatch=1, term=1, **facts))

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for event in self.published for one in one_by_one(event) if isinstance(one, kind)]

    @property
    def is_trained(self) -> bool:
        return all(not list(group.missing(self.plan.tasks)) for group in self.groups)
