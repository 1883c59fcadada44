"""The process around a ps' cores: sockets, the broker, and the threads that execute the controller's commands."""

from __future__ import annotations

import queue
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from elasticdl.ps.controller.commands import Lane, PsCommand
from elasticdl.ps.controller.events import BatchAbsorbed, ModelCreated, OrderReceived, ProcessStarted, PsEvent
from elasticdl.ps.executors import BrokerExecutor, Executor, ModelExecutor, StorageExecutor, report
from elasticdl.ps.handler import PsHandler
from elasticdl.ps.identity import PsIdentity
from elasticdl.ps.membership import Membership
from elasticdl.ps.shard.core import PsCore
from elasticdl.shared.addresses import authority, host_and_port
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.model.manifests import snapshots_folder
from elasticdl.shared.names import Service
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.core_runner import CoreRunner, Lanes
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.procedures import Issued
from elasticdl.shared.storage import ObjectStore
from elasticdl.shared.wire.server import WireServer

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
