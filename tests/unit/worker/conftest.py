"""A worker in memory: a queue, a ps with real ledgers, a model that adds numbers, data on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.deadline import DEADLINE_S
from tests.unit.worker.fakes import FakeFeeder, FakeModel, FakePs, FakeTasks

from elasticdl.shared.data import Reader, ReaderOptions, plan_sources
from elasticdl.shared.data.formats.tfrecord import write_records
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import Envelope, Event, TaskFailed, TaskFinished, TaskReturned, one_by_one
from elasticdl.shared.model.metric_states import pack_states
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service
from elasticdl.shared.process.clock import SystemClock, VirtualClock
from elasticdl.shared.process.core_runner import CoreRunner, Lanes, SetTimer
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.running_batches import RunningBatchesFile
from elasticdl.shared.storage import MemoryStore, open_store
from elasticdl.worker.core import CoreSettings, PipelineSettings, WorkerCore, commands
from elasticdl.worker.core.commands import Command
from elasticdl.worker.core.events import Event as WorkerEvent
from elasticdl.worker.core.events import ProgressMade, Started, StopRequested
from elasticdl.worker.execution.batch_store import BatchStore
from elasticdl.worker.execution.compute_lane import ComputeLane, ComputeSettings
from elasticdl.worker.execution.executor import Executor, lane_handlers
from elasticdl.worker.execution.input_lane import BatchLoader, Dataset
from elasticdl.worker.execution.predictor import Predictor
from elasticdl.worker.execution.ps_lane import PsLane
from elasticdl.worker.input.records import TaskRecords
from elasticdl.worker.predictions.output import PredictionOutput
from elasticdl.worker.ps_client import PinLostError
from elasticdl.worker.running_batches import RunningBatches


def message(number: int, purpose: Purpose = Purpose.TRAIN, **facts: Any) -> TaskMessage:
    return TaskMessage(task=TaskRef(purpose=purpose, number=number), dispatch=1, term=1, **facts)


@dataclass
class World:
    """Everything around one worker; ``run`` works until the queue is empty."""

    plan: Plan
    records: Callable[[], TaskRecords]
    running_batches: RunningBatches
    model: FakeModel = field(default_factory=FakeModel)
    ps: FakePs = field(default_factory=FakePs)
    envelopes: list[Envelope] = field(default_factory=list)
    exported: list[int] = field(default_factory=list)
    saved: list[tuple[int, int]] = field(default_factory=list)
    callbacks: list[commands.RunCallbacks] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    stored_states: dict[int, bytes] = field(default_factory=dict)
    """Number -> part of stored metric states."""
    stored_for: list[str] = field(default_factory=list)
    """The group of each part that the worker has stored."""
    loaded: list[int] = field(default_factory=list)
    """How many parts the worker has read at once, each time."""
    store: BatchStore = field(default_factory=BatchStore)
    files: MemoryStore = field(default_factory=MemoryStore)
    """Where predictions are written, in ``memory://out``."""

    def __post_init__(self) -> None:
        self.tasks = FakeTasks(self.stop, is_idle=lambda: len(self.store) == 0)
        name, incarnation = PodName("worker-0"), Incarnation("cafe")
        factory = EnvelopeFactory(service=Service.WORKER, name=name, incarnation=incarnation, clock=VirtualClock())
        self.factory = factory

    def append(self, envelopes: Sequence[Envelope]) -> None:
        self.envelopes.extend(envelopes)

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
                callbacks=self.run_callbacks,
                export=self.export,
                save=lambda pin, keep: self.saved.append((pin, keep)),
            ),
            self.model,
            self.store,
            self.running_batches,
            loader.name_record,
        )
        predictor = Predictor(
            model=self.model,
            store=self.store,
            running_batches=self.running_batches,
            output=PredictionOutput(
                store=self.files, folder="memory://out", job="job", tasks=self.plan.tasks, suffix="parquet"
            ),
            progress=lambda: self.runner.post(ProgressMade()),
            name_record=loader.name_record,
        )
        return {
            **lane_handlers(loader, compute, PsLane(self.ps, self.store)),
            **predictor.handlers,
            commands.LoadStates: self.load_states,
            commands.StoreStates: self.store_states,
            commands.InitialiseModel: lambda _: None,
            commands.PublishEvent: lambda command: self.append([self.factory.envelope(command.event)]),
            commands.PublishEvents: lambda command: self.append([*map(self.factory.envelope, command.events)]),
            commands.TakeTasks: self.tasks.take,
            commands.AckTask: self.tasks.ack,
            commands.NakTask: self.tasks.nak,
            commands.ExtendLease: lambda _: None,
            commands.Exit: lambda _: self.runner.stop(),
        }

    def run_callbacks(self, command: commands.RunCallbacks) -> commands.MergeResult:
        self.callbacks.append(command)
        if command.instances and dict(command.instances) != self.ps.credits():
            raise PinLostError("another instance answered")
        return commands.MergeResult(results={"learning_rate": 0.5}, note="because")

    def load_states(self, command: commands.LoadStates) -> tuple[bytes, ...]:
        self.loaded.append(len(command.numbers))
        return tuple(self.stored_states[number] for number in command.numbers if number in self.stored_states)

    def store_states(self, command: commands.StoreStates) -> tuple[int, ...]:
        first = max(self.stored_states, default=0) + 1
        parts = dict(enumerate(pack_states(command.states), start=first))
        self.stored_states |= parts
        self.stored_for += [command.group] * len(parts)
        return tuple(parts)

    def failed_with(self, error: BaseException) -> None:
        self.errors.append(error)
        self.runner.stop()

    def events(self, *kinds: type[Event]) -> list[Any]:
        published = [one for envelope in self.envelopes for one in one_by_one(envelope.event)]
        return [event for event in published if isinstance(event, kinds or (object,))]

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
        return World(plan, records, RunningBatches(hands[-1]))

    yield make
    for hand in hands:
        hand.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Ten records, five batches of two in three tasks."""
    return make_world()


__all__ = ["MakeWorld", "UserError", "World", "message"]
