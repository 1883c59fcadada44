"""A shell for the controller without threads: a test decides which command is executed when, and how it ends."""

from __future__ import annotations

from collections import deque
from typing import Any

from tests.unit.ps.example import PLAN, initial_dense, push_of, signature, spec

from elasticdl.ps.controller import ControllerSettings, PsController
from elasticdl.ps.controller.commands import (
    JoinJob,
    Lane,
    PsCommand,
    PublishEvent,
    ReadKey,
    WriteRegister,
)
from elasticdl.ps.controller.events import (
    BatchAbsorbed,
    CommandFailed,
    CommandSucceeded,
    KeyChanged,
    ModelCreated,
    OrderReceived,
    ProcessStarted,
    PsEvent,
)
from elasticdl.ps.executors import Executor, ModelExecutor, StorageExecutor
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.policy import SnapshotPolicy
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.errors import ElasticDLError, FencedError
from elasticdl.shared.messages.commands import Command, TakeSnapshot
from elasticdl.shared.messages.events import Event
from elasticdl.shared.messages.registers import PsRegister, decode_register, encode_register
from elasticdl.shared.model.manifests import snapshots_folder
from elasticdl.shared.model.placement import Placement, encode_placement
from elasticdl.shared.names import Incarnation, PodName, new_incarnation, pod_number
from elasticdl.shared.process.core_runner import SetTimer, TimerFired
from elasticdl.shared.process.procedures import Issued
from elasticdl.shared.storage import MemoryStore
from elasticdl.shared.wire.messages import Initialise, Push
from elasticdl.worker.ps_client.splitter import Splitter

PS = PodName("ps-0")


class Broker:
    """The key-value store and the log that all shells of a test use."""

    def __init__(self) -> None:
        self.entries: dict[str, KeyValueEntry] = {}
        self.log: list[Event] = []
        self._seq = 0

    def read(self, name: str) -> KeyValueEntry | None:
        return self.entries.get(name)

    def write(self, name: str, value: bytes, after: int) -> int:
        present = self.entries.get(name)
        if (present.seq if present else 0) != after:
            raise FencedError(f"{name} was written by another incarnation")
        self._seq += 1
        self.entries[name] = KeyValueEntry(value=value, seq=self._seq)
        return self._seq

    def register(self, name: str = PS) -> PsRegister:
        return decode_register(self.entries[name].value)

    def events(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.log if isinstance(event, kind)]


class Shell:
    """One incarnation of a ps whose commands wait until the test executes them."""

    def __init__(
        self,
        broker: Broker,
        store: MemoryStore,
        *,
        ps: PodName = PS,
        of: int = 1,
        policy: SnapshotPolicy | None = None,
        evaluation_steps: int = 0,
    ) -> None:
        self.broker = broker
        self.store = store
        self.ps = ps
        self.now_s = 0.0
        self.signature = signature()
        self.incarnation: Incarnation = new_incarnation()
        self.executed: list[PsCommand] = []
        self.timers: dict[str, float] = {}
        self.listens = self.joined = False
        self.core = PsCore(
            plan=PLAN, placement=Placement.even(of), number=pod_number(ps), policy=UpdatePolicy(), observer=self
        )
        settings = ControllerSettings(
            ps=ps,
            incarnation=self.incarnation,
            address="host:1",
            policy=policy or SnapshotPolicy(interval_s=0.0),
            evaluation_steps=evaluation_steps,
        )
        job = spec("memory://storage", ps=of)
        self.controller = PsController(self.core, SnapshotWriter(job, ps, self.incarnation), settings)
        self.waiting: dict[Lane, deque[Issued[PsCommand]]] = {lane: deque() for lane in Lane}
        folder = snapshots_folder(job.storage, job.job)
        self._storage = StorageExecutor(self.core, store, folder, ps, drop_pause_s=0.0)
        self._model = ModelExecutor(self.core, self)
        self._observed: list[PsEvent] = []

    # --- what a test does ---------------------------------------------------------------------------------------------

    def post(self, event: PsEvent) -> None:
        """Give the controller an event, and verify its invariants."""
        for command in self.controller.handle(event, self.now_s):
            if isinstance(command, SetTimer):
                self.timers[command.name] = command.due_s
            else:
                self.waiting[command.command.lane].append(command)
        self.controller.check()

    def start(self) -> None:
        """Start the process and execute all commands."""
        self.post(ProcessStarted())
        self.run()

    def run(self) -> list[str]:
        """Execute commands until none waits; returns the names of those that were executed."""
        before = len(self.executed)
        while any(self.waiting.values()):
            for lane in Lane:
                if self.waiting[lane]:
                    self.execute(lane)
        return self.names(before)

    def run_until(self, kind: type[Any]) -> Any:
        """Execute commands until one of a kind is next in its lane; returns that command."""
        while True:
            for lane in Lane:
                if self.waiting[lane]:
                    if isinstance(self.waiting[lane][0].command, kind):
                        return self.waiting[lane][0].command
                    self.execute(lane)

    def execute(self, lane: Lane) -> None:
        """Execute the next command of a lane."""
        issued = self.waiting[lane].popleft()
        self.executed.append(issued.command)
        try:
            result = self._execute(issued.command)
        except ElasticDLError as error:
            self.post(CommandFailed(number=issued.number, error=error))
        else:
            self.post(CommandSucceeded(number=issued.number, result=result))
        observed, self._observed = self._observed, []
        for event in observed:
            self.post(event)

    def fail(self, lane: Lane, error: ElasticDLError) -> None:
        """Let the next command of a lane fail without doing anything."""
        issued = self.waiting[lane].popleft()
        self.post(CommandFailed(number=issued.number, error=error))

    def advance(self, seconds: float) -> None:
        """Let time pass; timers that are due fire."""
        self.now_s += seconds
        for name, due_s in sorted(self.timers.items()):
            if due_s <= self.now_s:
                del self.timers[name]
                self.post(TimerFired(name=name, due_s=due_s))

    def order(self, command: Command) -> None:
        """Give an order that has to be admitted."""
        self.controller.admit(command)
        self.post(OrderReceived(command=command, cause="test"))

    def initialise(self) -> None:
        """Send the initial weights."""
        request = Initialise(
            plan=PLAN.fingerprint,
            signature=self.signature.to_json(),
            placement_version=self.core.placement.version,
            dense=initial_dense(),
        )
        self.core.initialise(request)
        self._report()

    def push(self, task: int, batch: int) -> None:
        """Push a batch of the example job."""
        splitter = Splitter(self.signature, PLAN.fingerprint, self.core.placement)
        requests = dict(zip(splitter.ps, splitter.push(push_of(task, batch)).requests, strict=True))
        request = requests[self.ps]
        assert isinstance(request, Push)
        self.core.push(request)
        self._report()

    def publish(self, placement: Placement) -> None:
        """Publish a version of the placement, as the master does; only this shell hears of it."""
        present = self.broker.entries.get(PLACEMENT)
        self.broker.write(PLACEMENT, encode_placement(placement), after=present.seq if present else 0)
        self.post(KeyChanged(name=PLACEMENT, entry=self.broker.entries[PLACEMENT]))

    def names(self, first: int = 0) -> list[str]:
        """The names of executed commands, without log messages."""
        return [name for name in (type(each).__name__ for each in self.executed[first:]) if name != "Log"]

    # --- what the cores and executors call ----------------------------------------------------------------------------

    def initialised(self) -> None:
        self._observed.append(ModelCreated())

    def serving(self) -> None:
        """Nothing waits for it."""

    def stepped(self, step: int) -> None:
        if self.controller.is_notable(step):
            self._observed.append(BatchAbsorbed(step=step))

    def listen(self) -> None:
        self.listens = True

    def join_job(self) -> None:
        self.joined = True

    def _report(self) -> None:
        observed, self._observed = self._observed, []
        for event in observed:
            self.post(event)

    def _execute(self, command: PsCommand) -> Any:
        match command:
            case ReadKey(name=name):
                return self.broker.read(name)
            case WriteRegister(register=register, after=after):
                return self.broker.write(self.ps, encode_register(register), after)
            case PublishEvent(event=event):
                return self.broker.log.append(event)
            case JoinJob():
                return self.join_job()
        executor: Executor = self._storage if command.lane is Lane.STORAGE else self._model
        return executor.execute(command)


def serving(broker: Broker, store: MemoryStore, policy: SnapshotPolicy | None = None) -> Shell:
    """A ps that serves, with snapshot 0 registered."""
    shell = Shell(broker, store, policy=policy)
    shell.start()
    shell.initialise()
    shell.run()
    return shell


def snapshot(request: int, **facts: object) -> TakeSnapshot:
    """The order to take a snapshot."""
    return TakeSnapshot(ps=PS, request=request, reason="test", **facts)  # type: ignore[arg-type]
