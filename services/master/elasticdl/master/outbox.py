"""The outbox: runs the commands of acknowledged decisions and reports the outcome to the log.

Commands go to lanes, see ``lane_of``. Those of one lane run one after the other, in the order of the log. No command
waits for those of another lane: a ps that crashes leaves an order unanswered for seconds, and the command that restarts
it comes after that order; a storage that hangs must not delay a dispatch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import assert_never

from elasticdl.master.core import State
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.training.task_messages import task_messages
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.bus.retries import until_done
from elasticdl.shared.bus.subjects import PLACEMENT, RING
from elasticdl.shared.bus.terms import LaterTermError
from elasticdl.shared.errors import ElasticDLError, FencedError, PermanentError, TransientError, UnreadableError
from elasticdl.shared.messages import commands
from elasticdl.shared.messages.commands import Command, Dispatch
from elasticdl.shared.messages.events import (
    CommandFailure,
    CommandsRan,
    Decided,
    Event,
    GroupLedger,
    LedgersRead,
    TermStarted,
)
from elasticdl.shared.messages.registers import RingRegister, decode_ring, encode_ring
from elasticdl.shared.model.manifests import DamagedError, damage, read_manifest
from elasticdl.shared.model.placement import Placement, decode_placement, encode_placement
from elasticdl.shared.names import LAUNCHER, PodName
from elasticdl.shared.pods.supervisor import PodSupervisor
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.retries import Backoff
from elasticdl.shared.storage import open_store

ORDER_TRIES_S_MAX = 10.0
"""Seconds during which an order to another process is retried before it counts as failed."""
ORDER_BACKOFF = Backoff(first_s=0.05, max_s=1.0)
TASKS_AT_ONCE_MAX = 256
"""Tasks that are queued together: workers get the first ones early, and other tasks of the loop wait milliseconds."""

PsOrder = commands.TakeSnapshot | commands.HoldGroup | commands.OpenPin | commands.ClosePin
ProcessOrder = PsOrder | commands.PromoteWorker
"""An order to the process in whose lane it is."""
PodCommand = commands.StartPod | commands.StopPod

_log = get_logger()
LedgerReader = Callable[[str], tuple[GroupLedger, ...]]
"""(URI of a snapshot's manifest) -> the ledgers in it; blocks."""

READ_S_MAX = 60.0
"""Seconds after which reading a manifest counts as failed; the core orders it again."""
_THREADS_MAX = 256
"""As many as a job may have ps, each of which has one manifest to read."""


@dataclass(slots=True, kw_only=True)
class _RunningDecision:
    """A decision whose commands are running."""

    seq: int
    open: int
    failures: list[CommandFailure] = field(default_factory=list)


class OrderRefusedError(ElasticDLError):
    """A process refused an order; its own events tell the core the outcome."""


class Outbox:
    """Runs commands in lanes, each in the order of the log. Each is idempotent: a successor may run it again."""

    def __init__(
        self, bus: Bus, clock: Clock, read_ledgers: LedgerReader, state: State, report: Callable[[Event], None]
    ) -> None:
        self.state = state
        self.term = 0
        """Term of the master that runs the commands, which another master may have decided."""
        self.return_deliveries = True
        """Whether to return deliveries of ended workers to the queue; otherwise their leases expire."""
        self.pods: PodSupervisor | None = None
        """Executes commands about pods in this process; None: the launcher does."""
        self._bus = bus
        self._clock = clock
        self._reads = LedgerReads(read_ledgers)
        self._report = report
        self._waiting: asyncio.Queue[tuple[int, Decided] | BaseException] = asyncio.Queue()
        self._running: deque[_RunningDecision] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_of_lane: dict[str, asyncio.Task[None]] = {}

    def put(self, seq: int, decided: Decided) -> None:
        """Queue the commands of a decision that the log has acknowledged."""
        self._waiting.put_nowait((seq, decided))

    async def run(self) -> None:
        """Run commands until cancelled. Raises ``ElasticDLError``: the bus refuses permanently."""
        try:
            while True:
                item = await self._waiting.get()
                if isinstance(item, BaseException):
                    raise item
                self._begin(*item)
        finally:
            for task in self._tasks:
                task.cancel()

    def _begin(self, seq: int, decided: Decided) -> None:
        """Queue the commands of a decision behind the earlier ones of their lanes."""
        running = _RunningDecision(seq=seq, open=len(decided.commands))
        self._running.append(running)
        for position, command in enumerate(decided.commands):
            lane = lane_of(command)
            run = partial(self._run_command, running, position, command, decided.term)
            task = asyncio.create_task(_after(self._last_of_lane.get(lane), run))
            self._last_of_lane[lane] = task
            self._tasks.add(task)
            task.add_done_callback(partial(self._ran, lane))

    def _ran(self, lane: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._last_of_lane.get(lane) is task:
            del self._last_of_lane[lane]
        if not task.cancelled() and (error := task.exception()):
            self._waiting.put_nowait(error)

    async def _run_command(self, running: _RunningDecision, position: int, command: Command, term: int) -> None:
        try:
            await self._run(command, cause=str(running.seq), term=term)
        except (TransientError, OrderRefusedError) as error:
            _log.warning("command failed", command=type(command).__name__, reason=str(error))
            running.failures.append(CommandFailure(position=position, message=str(error)))
        running.open -= 1
        while self._running and not self._running[0].open:
            done = self._running.popleft()
            done.failures.sort(key=lambda failure: failure.position)
            self._report(CommandsRan(up_to=done.seq, failures=tuple(done.failures)))

    async def _run(self, command: Command, cause: str, term: int) -> None:
        if isinstance(command, ProcessOrder):
            await self._send(PodName(lane_of(command)), command, cause)
            return
        match command:
            case commands.StartPod() | commands.StopPod():
                await self._send(LAUNCHER, command, cause)
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
            case commands.FormRing():
                await until_done("publish the ring", partial(self._try_to_publish_ring, command))
            case commands.BeginMove() | commands.SetTimer() | commands.EnterState():
                pass
            case commands.EndTraining() | commands.SetLearningRate():
                pass
            case commands.RemoveStates():
                await self._remove_states(command)
            case _:
                assert_never(command)

    async def _remove_states(self, command: commands.RemoveStates) -> None:
        for group in command.groups:
            await self._bus.stored_states.remove_group(group)
        await self._bus.stored_states.remove(number for numbers in command.numbers for number in range(*numbers))

    async def _read(self, command: commands.ReadLedgers) -> None:
        try:
            ledgers = await self._reads.read(command.manifest)
        except DamagedError as error:
            _log.error("final snapshot is damaged", reason=str(error))
            self._report(damage(command.ps, error, ""))
            return
        self._report(LedgersRead(ps=command.ps, manifest=command.manifest, ledgers=ledgers))

    async def _publish(self, dispatch: Dispatch, term: int) -> None:
        """Queue the messages of a dispatch, retrying without limit: the core never dispatches them again."""
        messages = task_messages(self.state, dispatch, term)
        while some := [(task, dispatch.again) for task in islice(messages, TASKS_AT_ONCE_MAX)]:
            await until_done("queue tasks", partial(self._bus.tasks.publish, some))

    async def _publish_placement(self, placement: Placement) -> None:
        """Publish a version of the placement, retrying without limit; it never replaces a later version."""
        await until_done("publish the placement", partial(self._try_to_publish, placement))

    async def _try_to_publish(self, placement: Placement) -> None:
        while (entry := await self._bus.registers.read(PLACEMENT)) is None or (
            _version_in(entry.value) < placement.version
        ):
            with contextlib.suppress(FencedError):  # Another master has written since: read again.
                await self._bus.registers.write(PLACEMENT, encode_placement(placement), after=entry.seq if entry else 0)
                return

    async def _try_to_publish_ring(self, command: commands.FormRing) -> None:
        """Publish a generation; it never replaces a later one of the same run."""
        ring = RingRegister(
            run=self.state.run, number=command.generation, members=command.members, reason=command.reason
        )
        while (entry := await self._bus.registers.read(RING)) is None or _is_earlier(entry.value, ring):
            with contextlib.suppress(FencedError):  # Another master has written since: read again.
                await self._bus.registers.write(RING, encode_ring(ring), after=entry.seq if entry else 0)
                return

    async def _send(self, pod: PodName, command: Command, cause: str) -> None:
        give_up_s = self._clock.monotonic() + ORDER_TRIES_S_MAX
        pauses = ORDER_BACKOFF.pauses()
        while True:
            try:
                return await self._send_once(pod, command, cause)
            except LaterTermError as error:
                # The append fails if there is a later master. Otherwise no master has that term, and this one
                # begins a term above it.
                self._report(TermStarted(term=error.latest + 1))
                if self._clock.monotonic() >= give_up_s:
                    raise OrderRefusedError(f"{pod} refused: {error}") from error
            except PermanentError as error:
                raise OrderRefusedError(f"{pod} refused: {error}") from error
            except TransientError:
                # The core sends the command again, to the pod's next process.
                if self._clock.monotonic() >= give_up_s or self._has_exited(pod):
                    raise
            await asyncio.sleep(next(pauses))

    async def _send_once(self, pod: PodName, command: Command, cause: str) -> None:
        if self.pods and isinstance(command, PodCommand):
            await self.pods.execute(command, cause)
        else:
            await self._bus.signals.order(pod, command, cause, term=self.term)

    def _has_exited(self, name: PodName) -> bool:
        pod = self.state.pods.get(name)
        return pod is not None and pod.phase is PodPhase.EXITED


def _version_in(register: bytes) -> int:
    """The version of a published placement; 0 if it can't be read: the log says what it has to be."""
    try:
        return decode_placement(register).version
    except UnreadableError as error:
        _log.warning("the published placement is replaced", reason=str(error))
        return 0


def _is_earlier(register: bytes, ring: RingRegister) -> bool:
    """Whether a published generation is of another run, or before this one."""
    try:
        published = decode_ring(register)
    except UnreadableError as error:
        _log.warning("the published ring is replaced", reason=str(error))
        return True
    return published.run != ring.run or published.number < ring.number


def lane_of(command: Command) -> str:
    """The lane of a command: one per process that gets orders, one per ps whose ledgers are read, and the queue's."""
    match command:
        case commands.StartPod() | commands.StopPod():
            return "pods"
        case commands.PromoteWorker(worker=worker):
            return worker
        case commands.ReadLedgers(ps=ps):
            return f"ledgers of {ps}"
        case Dispatch() | commands.ReturnDelivery():
            return "tasks"
        case commands.PublishPlacement():
            return PLACEMENT
        case commands.FormRing():
            return RING
        case commands.BeginMove() | commands.SetTimer() | commands.EnterState():
            return "nothing to run"
        case commands.EndTraining() | commands.SetLearningRate():
            return "nothing to run"
        case commands.RemoveStates():
            return "metric states"
        case _:
            return command.ps


async def _after(before: asyncio.Task[None] | None, then: Callable[[], Awaitable[None]]) -> None:
    if before:
        await asyncio.wait([before])
    await then()


class LedgerReads:
    """Reads manifests, each in one thread at most: ordered again, a read that hangs is waited for again.

    A thread can't be ended. At its end the master exits without waiting for those that hang.
    """

    def __init__(self, read: LedgerReader) -> None:
        self._read = read
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="ledgers")
        self._running: dict[str, asyncio.Future[tuple[GroupLedger, ...]]] = {}

    async def read(self, manifest: str) -> tuple[GroupLedger, ...]:
        """The ledgers in a snapshot.

        Raises:
            TransientError: the store is unreachable, or has not answered for ``READ_S_MAX``.
            PermanentError: the manifest is missing or damaged.
        """
        running = self._running.get(manifest)
        if running is None:
            running = asyncio.get_running_loop().run_in_executor(self._threads, self._read, manifest)
            self._running[manifest] = running
            running.add_done_callback(lambda done: self._ended(manifest, done))
        try:
            return await asyncio.wait_for(asyncio.shield(running), READ_S_MAX)
        except TimeoutError as error:
            raise TransientError(f"{manifest} could not be read within {READ_S_MAX:g} s") from error

    def _ended(self, manifest: str, done: asyncio.Future[tuple[GroupLedger, ...]]) -> None:
        del self._running[manifest]
        if not done.cancelled():
            done.exception()  # Otherwise asyncio warns if nothing waits for it any more.


def read_ledgers(manifest: str) -> tuple[GroupLedger, ...]:
    """Read the ledgers of every group in a snapshot, for the audit."""
    return read_manifest(open_store(manifest), manifest).ledgers
