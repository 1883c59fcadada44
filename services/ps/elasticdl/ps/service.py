"""The process around a ps' cores: sockets, the broker, and the threads that execute the controller's commands."""

from __future__ import annotations

import queue
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

import psutil

from elasticdl.ps.controller import ControllerSettings, PsController
from elasticdl.ps.controller.commands import Lane, PsCommand
from elasticdl.ps.controller.events import (
    BatchAbsorbed,
    KeyChanged,
    ModelCreated,
    OrderReceived,
    ProcessStarted,
    PsEvent,
)
from elasticdl.ps.executors import BrokerExecutor, Executor, ModelExecutor, StorageExecutor, report
from elasticdl.ps.handler import PsHandler
from elasticdl.ps.shard.core import Observer, PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.policy import SnapshotPolicy
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.addresses import authority, host_and_port
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import Bus, StopServing
from elasticdl.shared.failure_detection.heartbeat_loop import send_heartbeats
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.model.manifests import snapshots_folder
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import NO_INSTANCE, NOBODY, Incarnation, PodInstance, PodName, Service, pod_number
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.core_runner import CoreRunner, Lanes
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.procedures import Issued
from elasticdl.shared.storage import ObjectStore
from elasticdl.shared.wire.server import ServerSettings, WireServer

_POLL_S = 0.5
"""Seconds between two wake-ups of the main thread, which runs signal handlers only then."""
_JOIN_S = 30.0
"""How long ``close`` waits for commands under execution: seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedReplica:
    """A replica in another process, which a ps serves.

    Attributes:
        core: the model, which may have learned already.
        on_serving: called once pulls and pushes are served.
        before_order: awaited before an order is admitted; raises to refuse it.
    """

    core: PsCore
    on_serving: Callable[[], None]
    before_order: Callable[[Command], Awaitable[None]]


class PsService:
    """One incarnation of one ps.

    Args:
        hosted: what it serves; None: a model of its own.
    """

    def __init__(
        self,
        identity: PsIdentity,
        *,
        spec: JobSpec,
        bus: Bus,
        loop: LoopThread,
        store: ObjectStore,
        clock: Clock,
        hosted: HostedReplica | None = None,
    ) -> None:
        self._identity = identity
        self._ended, self._started = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        ps, incarnation = identity.ps, identity.incarnation
        envelopes = EnvelopeFactory(
            service=Service.PS,
            name=ps,
            incarnation=incarnation,
            run=identity.run,
            instance=identity.instance,
            clock=clock,
        )
        publisher = EventPublisher(bus.log, envelopes)
        self._hosted = hosted
        self.core = hosted.core if hosted else identity.model_core(spec, self)
        self.core.observe(self)
        handler = PsHandler(self.core, incarnation)
        self._server = WireServer(
            handler,
            token=identity.token,
            identity=incarnation,
            on_fatal=self.fail,
            settings=identity.wire,
            on_closed=handler.on_closed,
        )
        self._controller = identity.controller(spec, self.core, self.address)
        self._membership = Membership(identity, self.core, bus, loop, envelopes)
        self._storage = StorageExecutor(self.core, store, snapshots_folder(spec.storage, spec.job), ps)
        self._executors: Mapping[Lane, Executor] = {
            Lane.BROKER: BrokerExecutor(bus.registers, loop, publisher, ps, self),
            Lane.STORAGE: self._storage,
            Lane.MODEL: ModelExecutor(self.core, self),
        }
        self._runner: CoreRunner[PsEvent, Issued[PsCommand]] = CoreRunner(
            self._controller,
            execute=self._execute,
            lanes=Lanes(threads=[lane.value for lane in Lane], of=lambda issued: issued.command.lane.value),
            clock=clock,
            failed=self.fail,
        )
        self._observed: queue.SimpleQueue[PsEvent | None] = queue.SimpleQueue()
        self._observer = threading.Thread(target=self._post_observed, name="observer", daemon=True)

    @property
    def address(self) -> str:
        """``host:port`` that workers are told."""
        if not self._identity.advertised_host:
            return self._server.address
        return authority(self._identity.advertised_host, host_and_port(self._server.address)[1])

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
        """Wait until ``ask_to_end`` or an error. Raises ``ElasticDLError``: the error that ends this process."""
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
        self._membership.leave()
        self._server.close()
        self._observed.put(None)
        self._runner.stop()
        self._runner.join(_JOIN_S)
        self._storage.close()

    def initialised(self) -> None:
        """See ``Observer``."""
        self._observed.put(ModelCreated())

    def stepped(self, step: int) -> None:
        """See ``Observer``. Called for every push, so it only compares numbers unless something is due."""
        if self._controller.is_notable(step):
            self._observed.put(BatchAbsorbed(step=step))

    def serving(self) -> None:
        """See ``Observer``."""
        if self._hosted is not None:
            self._hosted.on_serving()

    def listen(self) -> None:
        """See ``Endpoint``."""
        self._server.start()

    def join_job(self) -> None:
        """See ``Endpoint``."""
        self._membership.join(self.take_order, self._runner.post, self.fail)
        self._started.set()

    async def take_order(self, command: Command, cause: str) -> None:
        """Begin to execute an order of the master; raises as ``PsController.admit`` to refuse it."""
        if self._hosted is not None:
            await self._hosted.before_order(command)
        self._controller.admit(command)
        self._runner.post(OrderReceived(command=command, cause=cause))

    def _execute(self, issued: Issued[PsCommand]) -> PsEvent:
        return report(issued, self._executors[issued.command.lane].execute)

    def _post_observed(self) -> None:
        while (event := self._observed.get()) is not None:
            self._runner.post(event)


class Membership:
    """Coroutines on the bus' loop, from ``join`` to ``leave``."""

    def __init__(
        self, identity: PsIdentity, core: PsCore, bus: Bus, loop: LoopThread, envelopes: EnvelopeFactory
    ) -> None:
        self._identity = identity
        self._core = core
        self._bus = bus
        self._loop = loop
        self._envelopes = envelopes
        self._tasks: list[Future[None]] = []
        self._stop_serving: StopServing | None = None

    def join(
        self,
        take_order: Callable[[Command, str], Awaitable[None]],
        post: Callable[[KeyChanged], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Begin; returns when orders are received.

        Args:
            take_order: accepts an order and its cause, or raises the reason for refusing it.
            failed: receives the error that ended the watch or the heartbeats. A ps that can't learn of its successor,
                or of a new placement, must end.
        """
        interval_s, port = self._identity.heartbeat_interval_s, self._identity.metrics_port
        sending = send_heartbeats(self._bus.signals, self._envelopes, interval_s, self._metrics, metrics_port=port)
        self._tasks.append(self._loop.spawn_endless(sending, failed))
        self._stop_serving = self._loop.call(self._bus.signals.serve_orders(self._identity.ps, take_order))
        self._tasks.append(self._loop.spawn_endless(self._watch(post), failed))

    def leave(self) -> None:
        """Send no more heartbeats, take no more orders, and end the watch."""
        for task in self._tasks:
            task.cancel()
        if self._stop_serving is not None:
            self._loop.call(_ended(self._stop_serving))

    async def _watch(self, post: Callable[[KeyChanged], None]) -> None:
        async for name, entry in self._bus.registers.watch():
            post(KeyChanged(name=name, entry=entry))

    def _metrics(self) -> dict[str, float]:
        shard = self._core.shard
        return {
            "step": float(shard.least_step if shard else 0),
            "rows": float(shard.rows if shard else 0),
            "model_bytes": float(shard.nbytes if shard else 0),
            "rss_bytes": float(psutil.Process().memory_info().rss),
        }


async def _ended(stop: StopServing) -> None:
    await stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class PsIdentity:
    """Which ps this is.

    Attributes:
        ps: name of the ps; the number at its end is its number in the placement.
        run: incarnation of the launcher that opened this run of the job.
        advertised_host: host name under which workers reach it; empty: the address that it listens on.
        memory_bytes_max: bytes of weights and optimizer state above which pushes are refused; 0: no limit.
        wire: address and limits of the wire server; None: the defaults.
    """

    ps: PodName
    incarnation: Incarnation
    run: Incarnation = NOBODY
    instance: PodInstance = NO_INSTANCE
    token: str
    advertised_host: str = ""
    memory_bytes_max: int = 0
    heartbeat_interval_s: float = 1.0
    metrics_port: int = 0
    wire: ServerSettings | None = None

    def model_core(self, spec: JobSpec, observer: Observer) -> PsCore:
        """The model core of this ps, without a model yet."""
        return PsCore(
            plan=spec.plan,
            placement=Placement.first_of(spec),
            number=pod_number(self.ps),
            policy=UpdatePolicy.of(spec),
            memory_bytes_max=self.memory_bytes_max,
            observer=observer,
        )

    def controller(self, spec: JobSpec, core: PsCore, address: str) -> PsController:
        """The controller of this ps; ``address``: ``host:port`` that workers are told."""
        settings = ControllerSettings(
            ps=self.ps,
            incarnation=self.incarnation,
            address=address,
            policy=SnapshotPolicy(interval_s=spec.snapshot_interval_s, steps=spec.snapshot_steps),
            initial=spec.initial,
            evaluation_steps=spec.evaluation_steps,
        )
        return PsController(core, SnapshotWriter(spec, self.ps, self.incarnation), settings)
