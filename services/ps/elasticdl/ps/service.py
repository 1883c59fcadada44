"""The shell of a ps: start-up in the order that recovery depends on, orders, heartbeats, and a clean end.

claim the name -> read the placement -> restore what the register names -> listen -> PsStarted acknowledged -> serve
no snapshot yet: ... -> wait for a worker's Initialise -> snapshot 0 registered -> serve
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass

import psutil
import structlog

from elasticdl.ps.handler import PsHandler
from elasticdl.ps.moves.holder import HoldOrder
from elasticdl.ps.registration import Registration
from elasticdl.ps.shard.admission import RefusedError, check_known
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.recovery import NothingLeftError, recover
from elasticdl.ps.snapshots.requests import Order, SnapshotPolicy
from elasticdl.ps.snapshots.snapshot_thread import SnapshotThread
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.errors import FencedError, PermanentError, ProtocolError
from elasticdl.shared.failure_detection.heartbeat_loop import keep_beating
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import ClosePin, Command, HoldGroup, OpenPin, TakeSnapshot
from elasticdl.shared.messages.events import GroupLedger, ModelPinned, PsStarted, StepReached
from elasticdl.shared.messages.registers import PsRegister
from elasticdl.shared.model.manifests import DamagedError, damage, snapshots_folder
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import Incarnation, PodName, Service, pod_number
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.storage import ObjectStore
from elasticdl.shared.wire.server import ServerSettings, WireServer

_SIGNAL_S = 0.5
"""A signal that the kernel gave to another thread is handled by ours when it wakes up: seconds until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PsIdentity:
    """Which ps this is.

    Attributes:
        ps: its name; the number at its end is its number in the placement.
        incarnation: which life.
        token: the job's secret.
        advertised_host: name under which workers reach it; empty: the address that it listens on.
        memory_bytes_max: bytes of weights and slots above which pushes are refused; 0: no limit.
        beat_interval_s: seconds between heartbeats.
    """

    ps: PodName
    incarnation: Incarnation
    token: str
    advertised_host: str = ""
    memory_bytes_max: int = 0
    beat_interval_s: float = 1.0

    @property
    def number(self) -> int:
        """Its number in the placement."""
        return pod_number(self.ps)


class PsService:
    """One life of one ps.

    Args:
        identity: which one.
        spec: the job.
        bus: log, register and signals; its coroutines run on ``loop``.
        loop: the bus' loop.
        store: snapshots.
        clock: time.
        wire: bounds and address of the wire server.
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
        wire: ServerSettings | None = None,
    ) -> None:
        self._identity = identity
        self._spec = spec
        self._bus = bus
        self._loop = loop
        self._store = store
        self._clock = clock
        self._log = structlog.get_logger()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._errands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._envelopes = EnvelopeFactory(
            service=Service.PS, name=identity.ps, incarnation=identity.incarnation, clock=clock
        )
        self._publisher = EventPublisher(lambda envelope: loop.call(bus.log.append(envelope)), self._envelopes)
        self._registration = Registration(bus, loop, identity.ps)
        self.core = PsCore(
            plan=spec.plan,
            placement=Placement.even(spec.ps),
            number=identity.number,
            policy=UpdatePolicy(grads_to_wait=spec.grads_to_wait, staleness_scaled_rate=spec.staleness_scaled_rate),
            memory_bytes_max=identity.memory_bytes_max,
            observer=self,
        )
        self._snapshots = SnapshotThread(
            core=self.core,
            ps=identity.ps,
            writer=SnapshotWriter(store, spec, identity.ps, identity.incarnation),
            store=store,
            registration=self._registration,
            publisher=self._publisher,
            policy=SnapshotPolicy(interval_s=spec.snapshot_interval_s, steps=spec.snapshot_steps),
            clock=clock,
            failed=self.fail,
        )
        self._server = WireServer(
            PsHandler(self.core, identity.incarnation),
            token=identity.token,
            identity=identity.incarnation,
            on_fatal=self.fail,
            settings=wire,
        )
        self._beating: Future[None] | None = None
        self._thread = threading.Thread(target=self._run_errands, name="errands", daemon=True)

    @property
    def address(self) -> str:
        """``host:port`` that workers are told."""
        if not self._identity.advertised_host:
            return self._server.address
        return f"{self._identity.advertised_host}:{self._server.address.rpartition(':')[2]}"

    def start(self) -> None:
        """Claim, restore, listen, announce.

        Raises:
            FencedError: another life of this ps is there.
            PermanentError: every kept snapshot is damaged, or the log is full.
            TransientError: broker or storage stayed away too long.
            UserError: the snapshot belongs to another plan.
        """
        register = self._registration.claim(self.address, self._identity.incarnation)
        placement = self._registration.placement()
        if placement:
            self.core.adopt(placement)
        restored, ledgers = self._restore(register) if register.manifest else ("", ())
        self._server.start()
        started = PsStarted(address=self.address, ledgers=ledgers, restored_from=restored, claim=self._registration.seq)
        self._publisher.publish(started)
        if restored or not self.core.owned:
            self.core.open_for_business()
        self._snapshots.start()
        self._thread.start()
        beating = keep_beating(self._bus.signals, self._envelopes, self._identity.beat_interval_s, self._metrics)
        self._beating = self._loop.spawn(beating)
        self._loop.call(self._bus.signals.serve_orders(self._identity.ps, self.take_order))
        self._loop.spawn(self._end_when_fenced())
        self._log.info("ps started", address=self.address, restored_from=restored, step=self.core.step)

    def wait(self) -> None:
        """Until somebody asks for the end, or something makes it.

        Raises:
            ElasticDLError: what made it.
        """
        while not self._ended.wait(_SIGNAL_S):
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

    def close(self) -> None:
        """Finish the requests in hand, end all threads. The model is not saved: that is ordered before."""
        self._ended.set()
        if self._beating:
            self._beating.cancel()
        self._server.close()
        self._snapshots.stop()
        self._errands.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def initialised(self) -> None:
        """See ``Observer``."""
        self._snapshots.initialised()

    def stepped(self, step: int) -> None:
        """See ``Observer``."""
        self._snapshots.stepped(step)
        if self._spec.evaluation_steps and step % self._spec.evaluation_steps == 0:
            self._errands.put(lambda: self._publisher.publish(StepReached(step=step)))

    async def take_order(self, command: Command, cause: str) -> None:
        """Begin what is ordered; threads do it, because nothing may block the bus' loop.

        Raises:
            PermanentError: not an order for this ps, or it is about a placement that is not known here yet.
        """
        ps = self._identity.ps
        check_known(command, self.core.placement.version)
        match command:
            case TakeSnapshot(ps=target) if target == ps:
                self._snapshots.order(Order.of(command, cause))
            case HoldGroup(ps=target) if target == ps:
                self._errands.put(lambda: self._hold(command, cause))
            case OpenPin(ps=target, evaluation=evaluation) if target == ps:
                self.core.check_serves()  # Once it does, it goes on to: the errand won't fail.
                self._errands.put(lambda: self._open_pin(evaluation, cause))
            case ClosePin(ps=target, evaluation=evaluation) if target == ps:
                self._errands.put(lambda: self.core.close_pin(evaluation))
            case _:
                raise PermanentError(f"{ps} does not know what to do with {command}")

    def _restore(self, register: PsRegister) -> tuple[str, tuple[GroupLedger, ...]]:
        """Install what the register names; returns the manifest that it is from, and its ledgers.

        Where the newest snapshot is damaged, what is in its place is on record before anybody hears of this life: an
        older one, or a new one of what was gathered from several.
        """
        try:
            recovered = recover(self._store, self.core, register, snapshots_folder(self._spec.storage, self._spec.job))
        except NothingLeftError as error:
            self._announce_damages(error.damages, "")
            raise
        if recovered.shard is None:
            self._announce_damages(recovered.damages, "")
            return "", ()
        self.core.install(recovered.shard)
        self._snapshots.adopt(recovered.kept)
        uri = recovered.uri or self._snapshots.save()
        self._announce_damages(recovered.damages, uri)
        if recovered.uri and recovered.damages:
            older = tuple(one for one, _ in reversed(recovered.kept[:-1]))
            self._registration.publish(uri, recovered.kept[-1][1].step, older)
        return uri, recovered.shard.ledgers

    def _announce_damages(self, damages: Iterable[DamagedError], instead: str) -> None:
        for error in damages:
            self._log.error("a snapshot is damaged", reason=str(error), instead=instead)
            self._publisher.publish(damage(self._identity.ps, error, instead))

    async def _end_when_fenced(self) -> None:
        try:
            await self._registration.until_lost(self._follow_placement)
        except (FencedError, ProtocolError) as error:
            self.fail(error)

    def _follow_placement(self, placement: Placement) -> None:
        """Go by another version of the placement; in a thread, because dropping rows takes a while."""
        self._errands.put(lambda: self._adopt(placement))

    def _adopt(self, placement: Placement) -> None:
        if self.core.adopt(placement):
            self._snapshots.lost()
            self._log.info("placement changed", version=placement.version, partitions=self.core.owned)

    def _hold(self, command: HoldGroup, cause: str) -> None:
        self._snapshots.order(
            HoldOrder(
                move=command.move,
                partitions=command.partitions,
                manifest=command.manifest or self._registration.snapshot_of(command.donor),
                cause=cause,
            )
        )

    def _open_pin(self, evaluation: int, cause: str) -> None:
        try:
            step = self.core.open_pin(evaluation)
        except RefusedError as error:
            self._log.warning("not pinned", evaluation=evaluation, reason=str(error))
            return
        self._publisher.publish(ModelPinned(evaluation=evaluation, step=step), cause=cause)

    def _run_errands(self) -> None:
        try:
            while (errand := self._errands.get()) is not None:
                errand()
        except BaseException as error:  # the thread's outermost frame
            self.fail(error)

    def _metrics(self) -> dict[str, float]:
        shard = self.core.shard
        return {
            "step": float(shard.least_step if shard else 0),
            "rows": float(shard.rows if shard else 0),
            "model_bytes": float(shard.nbytes if shard else 0),
            "rss_bytes": float(psutil.Process().memory_info().rss),
        }
