"""A worker in memory: a queue, a ps with real ledgers, a model that adds numbers, data on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deadline import DEADLINE_S

from elasticdl.shared.data import Reader, ReaderOptions, plan_sources
from elasticdl.shared.data.formats.tfrecord import write_records
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import Envelope, Event, TaskFailed, TaskFinished, TaskReturned
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service, TaskId
from elasticdl.shared.process.clock import SystemClock, VirtualClock
from elasticdl.shared.process.core_runner import CoreRunner, Lanes, SetTimer
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.running_batches import RunningBatchesFile
from elasticdl.shared.storage import open_store
from elasticdl.worker.core import CoreSettings, PipelineSettings, WorkerCore, commands
from elasticdl.worker.core.commands import Command
from elasticdl.worker.core.events import Event as WorkerEvent
from elasticdl.worker.core.events import QueueEmpty, Started, StopRequested, TaskDelivered
from elasticdl.worker.core.leased_tasks import LeasedTask
from elasticdl.worker.execution.batch_store import BatchStore
from elasticdl.worker.execution.compute_lane import ComputeLane, ComputeSettings
from elasticdl.worker.execution.executor import Executor, lane_handlers
from elasticdl.worker.execution.input_lane import BatchLoader, Dataset
from elasticdl.worker.execution.ps_lane import PsLane
from elasticdl.worker.input.records import TaskRecords
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.ports import Ids
from elasticdl.worker.ps_client import PinLostError, Pulled, PushOutcome, PushRequest, TaskProgress
from elasticdl.worker.ps_client.rules import contains_push


@dataclass
class FakeDelivery:
    message: TaskMessage
    attempt: int
    answer: str = ""


@dataclass
class FakeTasks:
    """Hands out messages; asks the worker to stop once everything is answered."""

    stop: Callable[[str], None]
    waiting: deque[tuple[TaskMessage, int]] = field(default_factory=deque)
    again: deque[tuple[TaskMessage, int]] = field(default_factory=deque)
    deliveries: list[FakeDelivery] = field(default_factory=list)
    deliveries_max: int = 30

    def publish(self, *messages: TaskMessage) -> None:
        self.waiting.extend((message, 1) for message in messages)

    def take(self, _: commands.TakeTask) -> TaskDelivered | QueueEmpty:
        source = self.again or self.waiting
        if source and len(self.deliveries) < self.deliveries_max:
            message, attempt = source.popleft()
            self.deliveries.append(FakeDelivery(message, attempt))
            lease = LeasedTask(number=len(self.deliveries), message=message, attempt=attempt)
            return TaskDelivered(lease=lease)
        if all(delivery.answer for delivery in self.deliveries):
            self.stop("drained")
        return QueueEmpty()

    def ack(self, command: commands.AckTask) -> None:
        self.deliveries[command.lease.number - 1].answer = "ack"

    def nak(self, command: commands.NakTask) -> None:
        delivery = self.deliveries[command.lease.number - 1]
        delivery.answer = "nak"
        self.again.append((delivery.message, delivery.attempt + 1))


@dataclass(frozen=True)
class FakeBatch:
    values: np.ndarray[Any, Any]

    @property
    def count(self) -> int:
        return len(self.values)


class FakeFeeder:
    """Records are decimal numbers; ``skip`` is filtered out, ``bad`` raises."""

    is_compiled = True

    def feed(self, records: list[bytes], seed: int = 0) -> FakeBatch | None:
        if b"bad" in records:
            raise UserCodeError("feed() raised ValueError", traceback="File model.py, line 7")
        values = [int(record) for record in records if record != b"skip"]
        return FakeBatch(np.array(values, np.int64)) if values else None


@dataclass(frozen=True)
class FakeResult:
    loss: float
    row_gradients: Mapping[str, Any]
    finite: bool = True
    overflow: bool = False
    problem: str = ""
    dense_gradient: Any = field(default_factory=lambda: np.ones(3, np.float32))
    statistics_update: Any = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass
class FakeModel:
    """The loss of a batch is the mean of its numbers; ``nan_from`` and ``overflow`` are numbers that do harm."""

    nan_from: int = 1 << 60
    raise_at: int = -1
    overflow_at: int = -1
    seeds: list[int] = field(default_factory=list)
    trained: list[list[int]] = field(default_factory=list)
    sums: dict[str, list[float]] = field(default_factory=lambda: {"train": [0.0, 0.0], "evaluate": [0.0, 0.0]})

    def ids(self, batch: FakeBatch, *, training: bool = True) -> Mapping[str, Ids]:
        return {"table": batch.values % 4}

    def train(self, batch: FakeBatch, dense: Any, rows: Any, *, step_seed: int) -> FakeResult:
        unique, inverse = rows["table"]
        np.testing.assert_array_equal(unique[inverse][:, 0], batch.values % 4)
        self.seeds.append(step_seed)
        self.trained.append(batch.values.tolist())
        if self.raise_at in batch.values:
            raise UserCodeError("loss() raised ValueError", traceback="File model.py, line 9")
        finite = bool((batch.values < self.nan_from).all())
        self.add("train", batch)
        overflow = self.overflow_at in batch.values
        loss = float(batch.values.mean()) if finite else float("nan")
        return FakeResult(
            loss, {"table": unique}, finite and not overflow, overflow, "" if finite else "the loss is nan"
        )

    def rate(self, iteration: int) -> float:
        return 1.0 / (1 + iteration)

    def evaluate(self, batch: FakeBatch, dense: Any, rows: Any, *, step_seed: int) -> float:
        self.add("evaluate", batch)
        return float(batch.values.mean())

    def add(self, purpose: str, batch: FakeBatch) -> None:
        self.sums[purpose][0] += float(batch.values.sum())
        self.sums[purpose][1] += batch.count

    def metric_states(self, purpose: str = "evaluate") -> Mapping[str, list[Any]]:
        return {"loss": [np.array(value) for value in self.sums[purpose]]}

    def reset_metrics(self, purpose: str = "evaluate") -> None:
        self.sums[purpose] = [0.0, 0.0]

    def merge(self, states: list[Mapping[str, list[Any]]]) -> dict[str, float]:
        total = sum(float(state["loss"][0][0]) for state in states)
        return {"loss": total / sum(float(state["loss"][1][0]) for state in states)}


@dataclass
class FakePs:
    """Two groups with ledgers; notes what goes over the wire; can lose its memory before a push."""

    groups: list[Ledger] = field(default_factory=lambda: [Ledger(), Ledger()])
    wire: list[str] = field(default_factory=list)
    pushes: list[PushRequest] = field(default_factory=list)
    restore_before_push: dict[int, int] = field(default_factory=dict)
    not_finite_at: int = -1
    pins: set[int] = field(default_factory=set)
    released: list[int] = field(default_factory=list)

    def credits(self) -> Mapping[PodName, Incarnation]:
        return {PodName("ps-0"): Incarnation("aaa"), PodName("ps-1"): Incarnation("bbb")}

    def next_batch(self, task: TaskId, batches: int) -> TaskProgress:
        return TaskProgress(
            next_batch=min(group.next_batch(task, batches) for group in self.groups), credits=self.credits()
        )

    def pull(self, ids: Mapping[str, Ids], *, pin: int = 0, batch: tuple[int, int] | None = None) -> Pulled:
        if pin and pin not in self.pins:
            raise PinLostError(f"pin {pin} is gone")
        self.wire.append(f"pin {pin}" if pin else "pull")
        buffers = {table: np.stack([flat, flat], axis=1).astype(np.float32) for table, flat in ids.items()}
        number = len(self.released)
        self.released.append(0)

        def release() -> None:
            self.released[number] += 1
            for buffer in buffers.values():
                buffer.fill(np.nan)

        step = self.groups[0].step
        return Pulled(
            dense=np.zeros(3, np.float32), rows=buffers, iterations={PodName("ps-0"): step}, step=step, release=release
        )

    def push(self, push: PushRequest) -> PushOutcome:
        number = len(self.pushes)
        if number in self.restore_before_push:
            self.groups[self.restore_before_push[number]] = Ledger()
        self.pushes.append(push)
        self.wire.append(f"push {push.task}.{push.batch}" + ("" if push.dense_gradient is not None else " empty"))
        if number == self.not_finite_at:
            return PushOutcome(next_batch=push.batch, credits={}, step=0, not_finite="dense gradient")
        for group in self.groups:
            group.absorb(push.task, push.batch, push.batches, push.records, push.checksum)
        progress = self.next_batch(push.task, push.batches)
        return PushOutcome(
            next_batch=progress.next_batch, credits=progress.credits, step=max(group.step for group in self.groups)
        )

    def push_and_pull(
        self, request: PushRequest, ids: Mapping[str, Ids], batch: tuple[int, int]
    ) -> tuple[PushOutcome, Pulled | None, float]:
        outcome = self.push(request)
        pulled = self.pull(ids, batch=batch) if contains_push(request, outcome, sent_once=True) else None
        return outcome, pulled, 0.0


def message(number: int, purpose: Purpose = Purpose.TRAIN, **facts: Any) -> TaskMessage:
    return TaskMessage(task=TaskRef(purpose=purpose, number=number), dispatch=1, term=1, **facts)


@dataclass
class World:
    """Everything around one worker; ``run`` works until the queue is empty."""

    plan: Plan
    records: Callable[[], TaskRecords]
    running_batches: RunningBatchesFile
    model: FakeModel = field(default_factory=FakeModel)
    ps: FakePs = field(default_factory=FakePs)
    envelopes: list[Envelope] = field(default_factory=list)
    exported: list[int] = field(default_factory=list)
    saved: list[tuple[int, int]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    store: BatchStore = field(default_factory=BatchStore)

    def __post_init__(self) -> None:
        self.tasks = FakeTasks(self.stop)
        name, incarnation = PodName("worker-0"), Incarnation("cafe")
        factory = EnvelopeFactory(service=Service.WORKER, name=name, incarnation=incarnation, clock=VirtualClock())
        self.publisher = EventPublisher(self.envelopes.append, factory)

    def publish_plan(self) -> None:
        self.tasks.publish(*(message(task) for task in self.plan.task_ids()))

    def export(self, command: commands.ExportModel) -> None:
        if command.audited and dict(command.audited) != self.ps.credits():
            raise PinLostError("another instance answered")
        self.exported.append(command.version)

    def stop(self, reason: str) -> None:
        self.runner.post(StopRequested(reason=reason))

    def run(self, *, validation: bool = True, staleness: int = 0) -> None:
        settings = CoreSettings(
            plan=self.plan,
            validation=self.plan if validation else None,
            pipeline=PipelineSettings(staleness=staleness),
            failure_pause_s=0.0,
        )
        core = CheckedCore(WorkerCore(settings))
        executor = Executor(self.handlers(validation))
        self.runner: CoreRunner[WorkerEvent, Command] = CoreRunner(
            core,
            execute=executor.execute,
            lanes=Lanes(
                threads=[lane for lane in commands.LANES if lane != commands.COMPUTE],
                of=commands.lane_of,
                own=commands.COMPUTE,
            ),
            clock=SystemClock(),
            failed=self.failed_with,
        )
        self.runner.start()
        self.runner.post(Started())
        self.runner.run()
        self.runner.join(DEADLINE_S)
        for error in self.errors:
            raise error

    def handlers(self, validation: bool) -> dict[type, Callable[[Any], Any]]:
        training = Dataset(records=self.records(), feeder=FakeFeeder())
        loader = BatchLoader(
            training,
            Dataset(records=self.records(), feeder=FakeFeeder()) if validation else None,
            model=self.model,
            store=self.store,
            running_batches=self.running_batches,
        )
        compute = ComputeLane(
            ComputeSettings(
                plan=self.plan,
                rate_from_worker=False,
                export=self.export,
                save=lambda pin, keep: self.saved.append((pin, keep)),
            ),
            self.model,
            self.store,
            self.running_batches,
        )
        return {
            **lane_handlers(loader, compute, PsLane(self.ps, self.store)),
            commands.InitialiseModel: lambda _: None,
            commands.PublishEvent: lambda command: self.publisher.publish(command.event),
            commands.TakeTask: self.tasks.take,
            commands.AckTask: self.tasks.ack,
            commands.NakTask: self.tasks.nak,
            commands.ExtendLease: lambda _: None,
            commands.Exit: lambda _: self.runner.stop(),
        }

    def failed_with(self, error: BaseException) -> None:
        self.errors.append(error)
        self.runner.stop()

    def events(self, *kinds: type[Event]) -> list[Any]:
        return [envelope.event for envelope in self.envelopes if isinstance(envelope.event, kinds or (object,))]

    def finished(self) -> list[TaskFinished]:
        return self.events(TaskFinished)

    def failed(self) -> list[TaskFailed]:
        return self.events(TaskFailed)

    def returned(self) -> list[TaskReturned]:
        return self.events(TaskReturned)


class CheckedCore:
    """Verifies the invariants after every event."""

    def __init__(self, core: WorkerCore) -> None:
        self._core = core

    def handle(self, event: WorkerEvent, now_s: float) -> Sequence[Command | SetTimer]:
        issued = self._core.handle(event, now_s)
        self._core.check()
        return issued


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    """Build a world over the given records, in files of their own folder."""
    hands: list[RunningBatchesFile] = []

    def make(*files: list[bytes], shuffle: Shuffle = Shuffle.NONE, epochs: int = 1, per_task: int = 2) -> World:
        folder = tmp_path / f"data{len(hands)}"
        for number, lines in enumerate(files or ([str(n).encode() for n in range(10)],)):
            write_records(folder / f"{number}.tfrecord", lines)
        store = open_store("file:///")
        planned = plan_sources(str(folder), ReaderOptions(), store)
        plan = Plan(
            sources=planned.sources,
            minibatch_size=2,
            minibatches_per_task=per_task,
            epochs=epochs,
            shuffle=shuffle,
            seed=7,
        )

        def records() -> TaskRecords:
            reader = Reader(
                store=store, sources=planned.sources, schema=planned.schema, index=planned.indices.__getitem__
            )
            return TaskRecords(plan=plan, reader=reader, whole_batches=False)

        hands.append(RunningBatchesFile(tmp_path / f"hand{len(hands)}"))
        return World(plan, records, hands[-1])

    yield make
    for hand in hands:
        hand.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Ten records, five batches of two in three tasks."""
    return make_world()


__all__ = ["MakeWorld", "UserError", "World", "message"]
