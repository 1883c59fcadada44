"""The process around a ps' cores: sockets, the broker, and the threads that execute the controller's commands."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass

import psutil

from elasticdl.ps.controller import ControllerSettings, PsController
from elasticdl.ps.controller.commands import Lane, PsCommand
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
from elasticdl.ps.executors import BrokerExecutor, ModelExecutor, StorageExecutor
from elasticdl.ps.handler import PsHandler
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.policy import SnapshotPolicy
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.failure_detection.heartbeat_loop import keep_beating
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.model.manifests import snapshots_folder
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import Incarnation, PodName, Service, pod_number
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.core_runner import CoreRunner
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.procedures import Issued
from elasticdl.shared.storage import ObjectStore
from elasticdl.shared.wire.server import ServerSettings, WireServer

_POLL_S = 0.5
"""The main thread runs signal handlers only when it wakes up: seconds between two looks."""
_JOIN_S = 30.0
"""How long the end waits for commands under execution: seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PsIdentity:
    """Which ps this is.

    Attributes:
        ps: name of the ps; the number at its end is its number in the placement.
        incarnation: its incarnation.
        token: the job's secret.
        advertised_host: host name under which workers reach it; empty: the address that it listens on.
        memory_bytes_max: bytes of weights and optimizer state above which pushes are refused; 0: no limit.
        beat_interval_s: seconds between heartbeats.
        wire: address and limits of the wire server; None: the defaults.
    """

    ps: PodName
    incarnation: Incarnation
    token: str
    advertised_host: str = ""
    memory_bytes_max: int = 0
    beat_interval_s: float = 1.0
    wire: ServerSettings | None = None


class PsService:
    """One incarnation of one ps.

    Args:
        identity: which one.
        spec: the job.
        bus: the broker; its coroutines run on ``loop``.
        loop: the bus' loop.
        store: where snapshots are.
        clock: time.
    """

    def __init__(
        self, identity: PsIdentity, *, spec: JobSpec, bus: Bus, loop: LoopThread, store: ObjectStore, clock: Clock
    ) -> None:
        self._identity = identity
        self._bus = bus
        self._loop = loop
        self._ended = threading.Event()
        self._started = threading.Event()
        self._error: BaseException | None = None
        ps, incarnation = identity.ps, identity.incarnation
        self._envelopes = EnvelopeFactory(service=Service.PS, name=ps, incarnation=incarnation, clock=clock)
        self.core = PsCore(
            plan=spec.plan,
            placement=Placement.even(spec.ps),
            number=pod_number(ps),
            policy=UpdatePolicy(grads_to_wait=spec.grads_to_wait, staleness_scaled_rate=spec.staleness_scaled_rate),
            memory_bytes_max=identity.memory_bytes_max,
            observer=self,
        )
        self._server = WireServer(
            PsHandler(self.core, incarnation),
            token=identity.token,
            identity=incarnation,
            on_fatal=self.fail,
            settings=identity.wire,
        )
        settings = ControllerSettings(
            ps=ps,
            incarnation=incarnation,
            address=self.address,
            policy=SnapshotPolicy(interval_s=spec.snapshot_interval_s, steps=spec.snapshot_steps),
            evaluation_steps=spec.evaluation_steps,
        )
        self._controller = PsController(self.core, SnapshotWriter(spec, ps, incarnation), settings)
        publisher = EventPublisher(lambda envelope: loop.call(bus.log.append(envelope)), self._envelopes)
        self._storage = StorageExecutor(self.core, store, snapshots_folder(spec.storage, spec.job), ps)
        self._model = ModelExecutor(self.core, self)
        self._broker = BrokerExecutor(bus.registers, loop, publisher, ps, self)
        self._runner: CoreRunner[PsEvent, Issued[PsCommand]] = CoreRunner(
            self._controller,
            execute=self._execute,
            lane_of=lambda issued: issued.command.lane.value,
            lanes=[lane.value for lane in Lane],
            own_lane="main",
            clock=clock,
            failed=self.fail,
        )
        self._background: list[Future[None]] = []
        self._observed: queue.SimpleQueue[PsEvent | None] = queue.SimpleQueue()
        self._observer = threading.Thread(target=self._report, name="observer", daemon=True)

    @property
    def address(self) -> str:
        """``host:port`` that workers are told."""
        if not self._identity.advertised_host:
            return self._server.address
        return f"{self._identity.advertised_host}:{self._server.address.rpartition(':')[2]}"

    def start(self) -> None:
        """Take part in the job; returns when orders are received. Errors as ``Startup.run``."""
        self._runner.start()
        self._observer.start()
        self._runner.post(ProcessStarted())
        while not self._started.wait(_POLL_S) and not self._ended.is_set():
            pass
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Wait until ``ask_to_end`` or an error.

        Raises:
            ElasticDLError: the error that ends this process.
        """
        while not self._ended.wait(_POLL_S):
            pass
        if self._error is not None:
            raise self._error

    def ask_to_end(self) -> None:
        """Let ``wait`` return; safe in a signal handler."""
        self._ended.set()

    def fail(self, error: BaseException) -> None:
        """End with an error; the first one counts."""
        if self._error is None:
            self._error = error
        self._ended.set()
        self._started.set()

    def close(self) -> None:
        """Finish requests and commands under execution, and end all threads. Saves nothing: the master orders that."""
        self._ended.set()
        for task in self._background:
            task.cancel()
        self._server.close()
        self._observed.put(None)
        self._runner.stop()
        self._runner.join(_JOIN_S)
        self._storage.close()

    # --- what the model's core and the executors call -----------------------------------------------------------------

    def initialised(self) -> None:
        """See ``Observer``."""
        self._observed.put(ModelCreated())

    def stepped(self, step: int) -> None:
        """See ``Observer``. Called for every push, so it only compares numbers unless something is due."""
        if self._controller.is_notable(step):
            self._observed.put(BatchAbsorbed(step=step))

    def listen(self) -> None:
        """See ``Endpoint``."""
        self._server.start()

    def join_job(self) -> None:
        """See ``Endpoint``."""
        interval_s = self._identity.beat_interval_s
        beating = keep_beating(self._bus.signals, self._envelopes, interval_s, self._metrics)
        self._background.append(self._loop.spawn(beating))
        self._loop.call(self._bus.signals.serve_orders(self._identity.ps, self.take_order))
        self._background.append(self._loop.spawn(self._watch()))
        self._started.set()

    async def take_order(self, command: Command, cause: str) -> None:
        """Begin to execute an order of the master.

        Raises:
            PermanentError, RefusedError: the order is refused.
        """
        self._controller.admit(command)
        self._runner.post(OrderReceived(command=command, cause=cause))

    # --- threads ------------------------------------------------------------------------------------------------------

    def _execute(self, issued: Issued[PsCommand]) -> PsEvent:
        executors = {Lane.BROKER: self._broker, Lane.STORAGE: self._storage, Lane.MODEL: self._model}
        try:
            result = executors[issued.command.lane].execute(issued.command)  # type: ignore[attr-defined]
        except ElasticDLError as error:
            return CommandFailed(number=issued.number, error=error)
        return CommandSucceeded(number=issued.number, result=result)

    def _report(self) -> None:
        while (event := self._observed.get()) is not None:
            self._runner.post(event)

    async def _watch(self) -> None:
        try:
            async for name, entry in self._bus.registers.watch():
                self._runner.post(KeyChanged(name=name, entry=entry))
        except ElasticDLError as error:
            self.fail(error)

    def _metrics(self) -> dict[str, float]:
        shard = self.core.shard
        return {
            "step": float(shard.least_step if shard else 0),
            "rows": float(shard.rows if shard else 0),
            "model_bytes": float(shard.nbytes if shard else 0),
            "rss_bytes": float(psutil.Process().memory_info().rss),
        }
