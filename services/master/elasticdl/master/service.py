"""The master's shell: reads the log, asks the core, appends decisions, hands their commands to the outbox."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from elasticdl.master.core import Decision, State, decide, evolve
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.heartbeat_monitor import listen
from elasticdl.master.outbox import LedgerReader, Outbox
from elasticdl.master.snapshots.recovery import Recovered, recover
from elasticdl.master.snapshots.writer import CoreSnapshotWriter
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.errors import FencedError, InvariantError
from elasticdl.shared.failure_detection.detector import SilenceWatch
from elasticdl.shared.messages.events import Decided, Envelope, Event, LogRecord, TermStarted, TimerFired
from elasticdl.shared.names import MASTER, Incarnation, PodName, Service
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.envelopes import EnvelopeFactory

DECISIONS_IN_A_ROW_MAX = 64
TAKEOVER_TRIES_MAX = 10
"""Times that a new master reads the log anew because a former one has decided something meanwhile."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterOptions:
    """How a master behaves.

    Attributes:
        silence_s: seconds without a heartbeat after which a process is replaced.
        beat_interval_s: seconds between heartbeats.
        snapshot_records: log records between two core snapshots; 0: none.
        return_deliveries: give a dead worker's deliveries back at once; otherwise their leases do it.
    """

    silence_s: float = 6.0
    beat_interval_s: float = 1.0
    snapshot_records: int = 0
    return_deliveries: bool = True


class Master:
    """One term of a job's master.

    Every append to the log goes through this loop, one at a time, and names the last one before it: a second master
    that lives at the same time is refused by the log, and so is this one when it is no longer the latest.

    Args:
        bus: the job's bus.
        clock: tells the core what time it is.
        incarnation: this life of the master.
        read_ledgers: reads the audit's evidence.
        options: how it behaves.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        incarnation: Incarnation,
        read_ledgers: LedgerReader,
        options: MasterOptions | None = None,
    ) -> None:
        self.state = State()
        self._bus = bus
        self._clock = clock
        self._envelopes = EnvelopeFactory(service=Service.MASTER, name=MASTER, incarnation=incarnation, clock=clock)
        self._term = 0
        self._options = options or MasterOptions()
        self._last_append = 0
        self._last_input = 0
        """Where the log has this master's latest input; nothing is decided before it was read back in its place."""
        self._read_seq = 0
        self._inbox: asyncio.Queue[LogRecord | Event] = asyncio.Queue()
        self._outbox = Outbox(bus, clock, read_ledgers, self.state, self._inbox.put_nowait)
        self._outbox.return_deliveries = self._options.return_deliveries
        self._armed: dict[str, tuple[float, asyncio.TimerHandle]] = {}

    async def run(self) -> State:
        """Work until the job is final.

        Returns:
            The final state.

        Raises:
            FencedError: a later master has taken over.
            PermanentError: the log refuses (disk full).
        """
        recovered = await self._recover()
        self._snapshots = CoreSnapshotWriter(self._bus.core_snapshots, self._options.snapshot_records, recovered)
        reader = asyncio.create_task(self._read(), name="log reader")
        outbox = asyncio.create_task(self._outbox.run(), name="outbox")
        snapshots = asyncio.create_task(self._snapshots.run(), name="core snapshots")
        interval_s = self._options.beat_interval_s
        watch = SilenceWatch(own=MASTER, limit_s=self._options.silence_s, interval_s=interval_s)
        listener = asyncio.create_task(
            listen(self._bus, self._clock, watch, interval_s, self._expected, self._inbox.put_nowait),
            name="listener",
        )
        try:
            while not (self.state.is_final and not self.state.pending_commands):
                await self._turn(reader, outbox, listener, snapshots)
        finally:
            for task in (reader, outbox, listener, snapshots):
                task.cancel()
            for _, handle in self._armed.values():
                handle.cancel()
        return self.state

    async def _recover(self) -> Recovered:
        for attempt in range(1, TAKEOVER_TRIES_MAX + 1):
            recovered = await recover(self._bus)
            self.state = recovered.state
            self._outbox.state = self.state
            self._read_seq = recovered.read_seq
            # Only what was folded may be named here: a decision that came later has to refuse us.
            self._last_append = self.state.master_seq
            self._term = self._outbox.term = self.state.term + 1
            try:
                self._last_input = await self._append(TermStarted(term=self._term))
                break
            except FencedError:
                # A former master, or a message that it sent before it died. Once our term is on the log it is fenced.
                if attempt == TAKEOVER_TRIES_MAX:
                    raise
        for seq, decided in self.state.pending_commands:
            self._outbox.put(seq, decided)
        _log.info(
            "term started",
            term=self._term,
            records=recovered.read_seq,
            from_core_snapshot=recovered.snapshot_seq,
            unfinished_decisions=len(self.state.pending_commands),
        )
        return recovered

    async def _read(self) -> None:
        async for record in self._bus.log.read(self._read_seq):
            self._inbox.put_nowait(record)

    async def _turn(self, *workers: asyncio.Task[None]) -> None:
        """Take in everything that waits, then decide."""
        waiting = asyncio.ensure_future(self._inbox.get())
        await asyncio.wait({waiting, *workers}, return_when=asyncio.FIRST_COMPLETED)
        for worker in workers:
            if worker.done():
                waiting.cancel()
                worker.result()
                raise InvariantError(f"the {worker.get_name()} ended while the job goes on")
        await self._take_in(waiting.result())
        while not self._inbox.empty():
            await self._take_in(self._inbox.get_nowait())
        # Own inputs count from where the log has them: decide only after reading up to there.
        if self._read_seq >= self._last_input:
            await self._decide()
            self._snapshots.offer(self.state)

    async def _take_in(self, item: LogRecord | Event) -> None:
        if not isinstance(item, LogRecord):
            self._last_input = await self._append(item)
            return
        event = item.envelope.event
        self._heed_term(event)
        self._read_seq = max(self._read_seq, item.seq)
        if not (isinstance(event, Decided) and item.envelope.incarnation == self._envelopes.incarnation):
            evolve(self.state, item)

    def _heed_term(self, event: Event) -> None:
        """A later term's decisions are not ours to fold: they belong elsewhere than where they are read."""
        if isinstance(event, TermStarted) and event.term > self._term:
            raise FencedError(f"term {event.term} has begun, this one was {self._term}")

    async def _decide(self) -> None:
        for _ in range(DECISIONS_IN_A_ROW_MAX):
            now_s = self._clock.now()
            decision = decide(self.state, now_s)
            if not decision:
                self._arm_timers()
                return
            await self._commit(decision, now_s)
        raise InvariantError(f"{DECISIONS_IN_A_ROW_MAX} decisions without a new input, the last: {decision.reasons}")

    async def _commit(self, decision: Decision, now_s: float) -> None:
        decided = Decided(
            term=self._term,
            after_seq=self.state.seq,
            now_s=now_s,
            commands=decision.commands,
            reasons=decision.reasons,
        )
        envelope = self._envelopes.envelope(decided)
        seq = await self._append_envelope(envelope)
        evolve(self.state, LogRecord(seq=seq, envelope=envelope))
        self._outbox.put(seq, decided)
        for reason in decision.reasons:
            _log.info("decided", reason=reason, commands=len(decision.commands))

    async def _append(self, event: Event) -> int:
        return await self._append_envelope(self._envelopes.envelope(event))

    async def _append_envelope(self, envelope: Envelope) -> int:
        self._last_append = await self._bus.log.append_fenced(envelope, after=self._last_append)
        return self._last_append

    def _expected(self) -> list[tuple[PodName, Incarnation]]:
        return [(pod.name, pod.incarnation) for pod in self.state.pods.values() if pod.phase is PodPhase.RUNNING]

    def _arm_timers(self) -> None:
        for timer, (due_s, handle) in list(self._armed.items()):
            if self.state.timers.get(timer) != due_s:
                handle.cancel()
                del self._armed[timer]
        loop = asyncio.get_running_loop()
        for timer, due_s in self.state.timers.items():
            if timer not in self._armed:
                delay_s = max(0.0, due_s - self._clock.now())
                fired = TimerFired(timer=timer, due_s=due_s)
                self._armed[timer] = (due_s, loop.call_later(delay_s, self._inbox.put_nowait, fired))
