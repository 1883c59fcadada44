"""The outbox: runs the commands of acknowledged decisions and reports the outcome to the log.

Commands begin in the order of the log. Orders to one ps stay in that order, but nobody else waits for its answers: a ps
that died with an order in its hands leaves it unanswered for seconds, and the command that starts it again comes later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from elasticdl.master.core import State
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.training.task_messages import task_messages
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.errors import ElasticDLError, FencedError, PermanentError, TransientError
from elasticdl.shared.messages import commands
from elasticdl.shared.messages.commands import Command, Dispatch
from elasticdl.shared.messages.events import CommandFailure, CommandsRan, Decided, Event, GroupLedger, LedgersRead
from elasticdl.shared.model.manifests import DamagedError, damage
from elasticdl.shared.model.placement import Placement, decode_placement, encode_placement
from elasticdl.shared.names import LAUNCHER, PodName
from elasticdl.shared.process.clock import Clock

ORDER_TRIES_S_MAX = 10.0
"""Seconds that an order to another process is repeated before it counts as failed; the core then learns from events."""
LedgerReader = Callable[[str], tuple[GroupLedger, ...]]
"""URI of a snapshot's manifest -> the ledgers in it; blocks."""

PsOrder = commands.TakeSnapshot | commands.HoldGroup | commands.OpenPin | commands.ClosePin

_log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class _UnderWay:
    """A decision whose commands have begun.

    Attributes:
        seq: its place in the log.
        open: commands without an outcome.
        failures: commands that could not be carried out.
    """

    seq: int
    open: int
    failures: list[CommandFailure] = field(default_factory=list)


class OrderRefusedError(ElasticDLError):
    """A process said no to an order; the core learns from that process' own events what became of it."""


class Outbox:
    """Commands waiting to be run. Each is idempotent, so a successor may run it once more."""

    def __init__(
        self, bus: Bus, clock: Clock, read_ledgers: LedgerReader, state: State, report: Callable[[Event], None]
    ) -> None:
        self.state = state
        self.term = 0
        """Of the master that runs the commands, whoever has decided them."""
        self.return_deliveries = True
        """Give a dead worker's deliveries back; otherwise their leases do it, as they do while there is no master."""
        self._bus = bus
        self._clock = clock
        self._read_ledgers = read_ledgers
        self._report = report
        self._waiting: asyncio.Queue[tuple[int, Decided] | BaseException] = asyncio.Queue()
        self._under_way: deque[_UnderWay] = deque()
        self._orderings: set[asyncio.Task[None]] = set()
        self._last_orders: dict[PodName, asyncio.Task[None]] = {}

    def put(self, seq: int, decided: Decided) -> None:
        """Queue the commands of a decision that the log has acknowledged."""
        self._waiting.put_nowait((seq, decided))

    async def run(self) -> None:
        """Run commands for ever.

        Raises:
            ElasticDLError: the bus refuses for good.
        """
        try:
            while True:
                item = await self._waiting.get()
                if isinstance(item, BaseException):
                    raise item
                await self._begin(*item)
        finally:
            for ordering in self._orderings:
                ordering.cancel()

    async def _begin(self, seq: int, decided: Decided) -> None:
        """Carry out what is not for a ps, and line up what is."""
        under_way = _UnderWay(seq=seq, open=len(decided.commands))
        self._under_way.append(under_way)
        for position, command in enumerate(decided.commands):
            carry_out = partial(self._carry_out, under_way, position, command, decided.term)
            if isinstance(command, PsOrder):
                self._line_up(command.ps, carry_out)
            else:
                await carry_out()

    def _line_up(self, ps: PodName, order: Callable[[], Awaitable[None]]) -> None:
        ordering = asyncio.create_task(_after(self._last_orders.get(ps), order))
        self._last_orders[ps] = ordering
        self._orderings.add(ordering)
        ordering.add_done_callback(self._ordered)

    def _ordered(self, ordering: asyncio.Task[None]) -> None:
        self._orderings.discard(ordering)
        if not ordering.cancelled() and (error := ordering.exception()):
            self._waiting.put_nowait(error)

    async def _carry_out(self, under_way: _UnderWay, position: int, command: Command, term: int) -> None:
        try:
            await self._run(command, cause=str(under_way.seq), term=term)
        except (TransientError, OrderRefusedError) as error:
            _log.warning("command failed", command=type(command).__name__, reason=str(error))
            under_way.failures.append(CommandFailure(position=position, message=str(error)))
        under_way.open -= 1
        while self._under_way and not self._under_way[0].open:
            done = self._under_way.popleft()
            done.failures.sort(key=lambda failure: failure.position)
            self._report(CommandsRan(up_to=done.seq, failures=tuple(done.failures)))

    async def _run(self, command: Command, cause: str, term: int) -> None:
        if isinstance(command, PsOrder):
            await self._order(command.ps, command, cause)
            return
        match command:
            case commands.StartPod() | commands.StopPod():
                await self._order(LAUNCHER, command, cause)
            case Dispatch():
                await self._publish(command, term)
            case commands.ReturnDelivery() if not self.return_deliveries:
                pass
            case commands.ReturnDelivery():
                await self._bus.tasks.give_back(command.reply)
            case commands.ReadLedgers():
                await self._read(command)
            case commands.PublishPlacement():
                await self._publish_placement(Placement(version=command.version, owners=command.owners))
            case commands.BeginMove() | commands.SetTimer() | commands.EnterState():
                pass
            case _:
                assert_never(command)

    async def _read(self, command: commands.ReadLedgers) -> None:
        try:
            ledgers = await asyncio.to_thread(self._read_ledgers, command.manifest)
        except DamagedError as error:
            _log.error("a final snapshot is damaged", reason=str(error))
            self._report(damage(command.ps, error, ""))
            return
        self._report(LedgersRead(ps=command.ps, manifest=command.manifest, ledgers=ledgers))

    async def _publish(self, dispatch: Dispatch, term: int) -> None:
        """Queue the messages of a dispatch, however long the broker is away: the core never dispatches them again."""
        queued = [(task, dispatch.again) for task in task_messages(self.state, dispatch, term)]
        while True:
            try:
                return await self._bus.tasks.publish(queued)
            except TransientError as error:
                _log.warning("tasks not queued yet", dispatch=dispatch.dispatch, reason=str(error))
                await asyncio.sleep(error.retry_after_s)

    async def _publish_placement(self, placement: Placement) -> None:
        """Make a version of the placement known, however long the broker is away; a later one that is there stays."""
        while True:
            try:
                entry = await self._bus.registers.read(PLACEMENT)
                if entry is None or decode_placement(entry.value).version < placement.version:
                    await self._bus.registers.write(
                        PLACEMENT, encode_placement(placement), after=entry.seq if entry else 0
                    )
                return
            except FencedError:
                continue  # A former master, or a message that it sent before it died: look again.
            except TransientError as error:
                _log.warning("placement not published yet", version=placement.version, reason=str(error))
                await asyncio.sleep(error.retry_after_s)

    async def _order(self, pod: PodName, command: Command, cause: str) -> None:
        give_up_s = self._clock.monotonic() + ORDER_TRIES_S_MAX

        def is_hopeless(_tries: RetryCallState) -> bool:
            # Whoever starts under this name next is told anew.
            return self._clock.monotonic() >= give_up_s or self._has_exited(pod)

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(TransientError),
            wait=wait_exponential(0.05, max=1.0),
            stop=is_hopeless,
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    await self._bus.signals.order(pod, command, cause, term=self.term)
        except PermanentError as error:
            raise OrderRefusedError(f"{pod} refused: {error}") from error

    def _has_exited(self, name: PodName) -> bool:
        pod = self.state.pods.get(name)
        return pod is not None and pod.phase is PodPhase.EXITED


async def _after(before: asyncio.Task[None] | None, then: Callable[[], Awaitable[None]]) -> None:
    if before:
        await asyncio.wait([before])
    await then()
