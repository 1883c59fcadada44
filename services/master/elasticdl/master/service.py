"""The master's shell: reads the log, asks the core, appends decisions, and passes their commands to the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from elasticdl.master.core import Decision, State, decide
from elasticdl.master.core.evolve import evolve
from elasticdl.master.outbox import LedgerReader, Outbox
from elasticdl.master.pod_recovery import supervisor_of
from elasticdl.master.snapshot_writer import CoreSnapshotWriter
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.errors import FencedError, InvariantError
from elasticdl.shared.failure_detection.detector import FailureDetector, MissedHeartbeats
from elasticdl.shared.failure_detection.heartbeats import HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S
from elasticdl.shared.failure_detection.monitor import HeartbeatMonitor
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import (
    Decided,
    Envelope,
    Event,
    HeartbeatsMissed,
    LogRecord,
    TermStarted,
    TimerFired,
)
from elasticdl.shared.names import MASTER, Incarnation, Service
from elasticdl.shared.pods.ports import Pods
from elasticdl.shared.process.clock import Clock, JobClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.logs import get_logger
from elasticdl.views import reading
from elasticdl.views.job_monitor import heartbeats_of_job
from elasticdl.views.reading import Reading, check_complete
from elasticdl.views.run_meter import RunMeter

DECISIONS_IN_A_ROW_MAX = 64
INPUTS_AT_ONCE_MAX = 256
"""Inputs that are applied before other tasks of the loop run: heartbeats and answers of the broker must not wait."""
MEASURE_EVERY_S = 15.0
"""Seconds between two records of what the run has measured so far."""
TAKEOVER_TRIES_MAX = 10
"""Times that a new master reads the log again because a former one has appended a decision since."""

_log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterOptions:
    """Options of a master.

    Attributes:
        heartbeat_timeout_s: seconds without a heartbeat after which a process is restarted.
        snapshot_records: log records between two core snapshots; 0: none.
        return_deliveries: return the deliveries of an ended worker to the queue at once; otherwise their leases expire.
        pods: gives the pods of a run of the job, which this master creates and watches itself; None: the launcher does.
    """

    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S
    snapshot_records: int = 0
    return_deliveries: bool = True
    pods: Callable[[Incarnation], Pods] | None = None


class Master:
    """One term of a job's master.

    Every append to the log goes through this loop, one at a time, and names the append before it. So the log refuses a
    second master that runs at the same time, and this one when it is no longer the latest.
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
        self._clock = clock = JobClock(clock)
        self._envelopes = EnvelopeFactory(service=Service.MASTER, name=MASTER, incarnation=incarnation, clock=clock)
        self._term = 0
        self._options = options or MasterOptions()
        self._last_append = 0
        self._last_input = 0
        """Log sequence of this master's latest input; it decides only after it has read that record from the log."""
        self._read_seq = 0
        self._inbox: asyncio.Queue[LogRecord | Event] = asyncio.Queue()
        self._outbox = Outbox(bus, clock, read_ledgers, self.state, self._inbox.put_nowait)
        self._outbox.return_deliveries = self._options.return_deliveries
        self._timers = TimerService(clock, self._inbox.put_nowait)
        self._meter: RunMeter | None = None
        """Measures the run if no launcher does."""
        self._measured_s = clock.monotonic()
        self._detector = FailureDetector(
            own=MASTER, timeout_s=self._options.heartbeat_timeout_s, interval_s=self._options.heartbeat_interval_s
        )

    async def run(self) -> State:
        """Run until the job is final.

        Raises:
            FencedError: a later master has taken over.
            PermanentError: the log refuses, for example because its disk is full.
            UnreadableError: a record that the state follows from can't be read.
        """
        recovered = await self._recover()
        self._snapshots = CoreSnapshotWriter(self._bus.core_snapshots, self._options.snapshot_records, recovered)
        reader = asyncio.create_task(self._read(), name="log reader")
        outbox = asyncio.create_task(self._outbox.run(), name="outbox")
        snapshots = asyncio.create_task(self._snapshots.run(), name="core snapshots")
        monitor = HeartbeatMonitor(self._bus.signals, self._clock, self._detector, self._on_tick, self._expect)
        monitoring = asyncio.create_task(monitor.run(self._options.heartbeat_interval_s), name="heartbeat monitor")
        tasks = [reader, outbox, monitoring, snapshots]
        if self._outbox.pods:
            tasks.append(asyncio.create_task(self._outbox.pods.run(), name="pod supervisor"))
        if self._meter:
            tasks.append(asyncio.create_task(self._receive_heartbeats(self._meter), name="run meter"))
        try:
            while not (self.state.is_final and not self.state.pending_commands):
                await self._turn(*tasks)
            if self._meter:
                await self._append_measurements(self._meter)
                while self._read_seq < self._last_input:
                    await self._turn(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            self._timers.cancel()
        return self.state

    async def _recover(self) -> Reading:
        for attempt in range(1, TAKEOVER_TRIES_MAX + 1):
            recovered = await reading.exact(self._bus)
            self.state = recovered.state
            check_complete(self.state)
            self._clock.continue_from(self.state.clock_s)
            self._outbox.state = self.state
            self._read_seq = recovered.read_seq
            # Only a folded record may be named here, so that a later decision makes the log refuse this append.
            self._last_append = self.state.master_seq
            self._term = self._outbox.term = self.state.term + 1
            try:
                self._last_input = await self._append(TermStarted(term=self._term))
                break
            except FencedError:
                # A former master, or a message that it sent before it ended. Our term on the log will fence it.
                if attempt == TAKEOVER_TRIES_MAX:
                    raise
        if self._options.pods:
            running = {pod.name: pod.incarnation for pod in self.state.pods.values() if pod.has_process}
            self._meter = RunMeter(self.state.measured, running)
            self._outbox.pods = supervisor_of(
                self.state, self._options.pods(self.state.run), self._on_pod_event, self._last_input
            )
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

    def _on_pod_event(self, event: Event, cause: str = "") -> None:  # noqa: ARG002  Only the event is stored.
        self._inbox.put_nowait(event)

    async def _read(self) -> None:
        async for record in self._bus.log.read(self._read_seq):
            self._inbox.put_nowait(record)

    async def _turn(self, *workers: asyncio.Task[None]) -> None:
        """Apply the waiting inputs, then decide."""
        waiting = asyncio.ensure_future(self._inbox.get())
        await asyncio.wait({waiting, *workers}, return_when=asyncio.FIRST_COMPLETED)
        for worker in workers:
            if worker.done():
                waiting.cancel()
                worker.result()
                raise InvariantError(f"the {worker.get_name()} ended while the job is running")
        await self._apply(waiting.result())
        for _ in range(min(self._inbox.qsize(), INPUTS_AT_ONCE_MAX)):
            await self._apply(self._inbox.get_nowait())
        # Own inputs count from their place in the log: decide only after reading up to there.
        if self._read_seq >= self._last_input:
            await self._decide()
            self._snapshots.offer(self.state)

    async def _apply(self, item: LogRecord | Event) -> None:
        if isinstance(item, TermStarted):
            await self._begin_term(item.term)
            return
        if not isinstance(item, LogRecord):
            self._last_input = await self._append(item)
            return
        event = item.envelope.event
        self._check_term(event)
        self._read_seq = max(self._read_seq, item.seq)
        if not (isinstance(event, Decided) and item.envelope.incarnation == self._envelopes.incarnation):
            evolve(self.state, item)
            if self._meter:
                self._meter.on_record(item.envelope, self.state)
        if isinstance(event, TimerFired):
            self._timers.on_fired(event)

    async def _begin_term(self, term: int) -> None:
        """Begin another term: a process has refused an order because it has obeyed a later term than the present one.

        Raises:
            FencedError: another master has begun that term.
        """
        if term > self._term:
            _log.warning("a process has obeyed a term that the log does not know", term=term - 1)
            self._last_input = await self._append(TermStarted(term=term))
            self._term = self._outbox.term = term

    def _check_term(self, event: Event) -> None:
        """Exit when a later term has begun: its decisions can't be applied at the place where they are read.

        Raises:
            FencedError: a later term has begun.
        """
        if isinstance(event, TermStarted) and event.term > self._term:
            raise FencedError(f"term {event.term} has begun; this master has term {self._term}")

    async def _decide(self) -> None:
        for _ in range(DECISIONS_IN_A_ROW_MAX):
            now_s = self._clock.now()
            decision = decide(self.state, now_s)
            if not decision:
                self._timers.set(self.state.timers)
                return
            await self._commit(decision, now_s)
        raise InvariantError(f"{DECISIONS_IN_A_ROW_MAX} decisions without an input, the last: {decision.reasons}")

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

    def _expect(self) -> None:
        for name, incarnation in self.state.watched:
            self._detector.expect(name, incarnation)

    async def _receive_heartbeats(self, meter: RunMeter) -> None:
        own = self._envelopes.incarnation
        async for heartbeat in heartbeats_of_job(self._bus.signals, self._clock, lambda: self.state, own):
            meter.on_heartbeat(heartbeat)

    async def _append_measurements(self, meter: RunMeter) -> None:
        """Put on the log what the run has measured; the job has ended."""
        run = replace(
            meter.measured(self.state, self.state.submitted_s),
            ended_s=self._clock.now(),
            is_interrupted=self.state.job_state is JobState.STOPPED and self.state.stopped_by is Service.CLIENT,
        )
        for process in meter.processes(self.state):
            await self._append(process)
        self._last_input = await self._append(run)

    def _on_tick(self, missed: list[MissedHeartbeats]) -> None:
        if self._meter and self._clock.monotonic() >= self._measured_s + MEASURE_EVERY_S:
            self._measured_s = self._clock.monotonic()
            self._inbox.put_nowait(self._meter.measured(self.state, self.state.submitted_s))
        for each in missed:
            if (each.pod, each.incarnation) in self.state.watched:
                self._inbox.put_nowait(
                    HeartbeatsMissed(pod=each.pod, incarnation=each.incarnation, silent_s=each.silent_s)
                )


class TimerService:
    """Timers on the asyncio loop; ``clock``: its ``now`` is the time to which timers are set."""

    def __init__(self, clock: Clock, fire: Callable[[TimerFired], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._running: dict[str, tuple[float, asyncio.TimerHandle]] = {}

    def set(self, timers: Mapping[str, float]) -> None:
        """Run these timers (name -> due time since 1970) and no others; each fires once until ``on_fired``."""
        for timer, (due_s, handle) in list(self._running.items()):
            if timers.get(timer) != due_s:
                handle.cancel()
                del self._running[timer]
        loop = asyncio.get_running_loop()
        for timer, due_s in timers.items():
            if timer not in self._running:
                delay_s = max(0.0, due_s - self._clock.now())
                fired = TimerFired(timer=timer, due_s=due_s)
                self._running[timer] = (due_s, loop.call_later(delay_s, self._fire, fired))

    def on_fired(self, event: TimerFired) -> None:
        """Forget a timer whose event was applied, so that it runs again when it is set again to the same time."""
        due_s, handle = self._running.get(event.timer, (None, None))
        if handle and due_s == event.due_s:
            handle.cancel()
            del self._running[event.timer]

    def cancel(self) -> None:
        """Cancel all timers."""
        for _, handle in self._running.values():
            handle.cancel()
        self._running.clear()
