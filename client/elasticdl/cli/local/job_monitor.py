"""Follows a job from the launcher: folds its event log as it grows, and collects the heartbeats of its processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from elasticdl.master.core import State, evolve
from elasticdl.master.snapshots.recovery import Recovered
from elasticdl.shared.bus.ports import Bus, EventLog
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.events import LogRecord, StopRequested
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.clock import Clock
from elasticdl.views.heartbeats import heartbeats_of_job
from elasticdl.views.run_meter import RunMeter


class RecordObserver(Protocol):
    """Is called about the event log of a job."""

    def on_start(self, state: State) -> None:
        """``state`` is what happened before; its ``seq`` is 0 for a new job."""
        ...

    def on_record(self, record: LogRecord, state: State) -> None:
        """A record was folded into ``state``."""
        ...


class Observer(RecordObserver, Protocol):
    """Is called about everything that happens to a local job."""

    def on_message(self, line: str) -> None:
        """The launcher has a line for the user."""
        ...

    def on_accepted(self) -> None:
        """The job is on its log and its master was started."""
        ...

    def on_terminal_closed(self) -> None:
        """The user closed the terminal; the job continues."""
        ...

    def on_tick(
        self, state: State, heartbeats: Mapping[PodName, Heartbeat], pids: Mapping[str, int], goodput: float | None
    ) -> None:
        """Time has passed; called several times a second.

        Args:
            pids: process ids of master and NATS server, which are not on the log.
            goodput: batches absorbed by batches computed; None: unknown.
        """
        ...


class JobMonitor:
    """Folds the log as it grows.

    Records are folded in the order of the log, so decisions are folded a little later than the master took them. For
    exact numbers use ``recover``, which folds as the master does.

    Args:
        observer: is called for every record.
        past: the job before this launcher's first record.
    """

    def __init__(self, observer: RecordObserver, past: Recovered, clock: Clock) -> None:
        self.state = past.state
        self.heartbeats: dict[PodName, Heartbeat] = {}
        self.final = asyncio.Event()
        self.stopped_by_client = False
        self._observer = observer
        self._clock = clock
        self._past_seq = past.read_seq
        self.meter = RunMeter()
        observer.on_start(self.state)

    @property
    def goodput(self) -> float | None:
        """Batches absorbed by batches computed in this run; None if there are too few."""
        return self.meter.goodput(self.state)

    def measured(self, started_s: float) -> RunMeasured:
        """The work of this run so far.

        Args:
            started_s: when the user entered the command, seconds since the epoch.
        """
        return self.meter.measured(self.state, started_s)

    async def follow(self, log: EventLog) -> None:
        """Read the log; never returns."""
        async for record in log.read(self._past_seq):
            self._fold(record)

    async def listen(self, bus: Bus) -> None:
        """Listen to the heartbeats of the job's processes; never returns."""
        async for heartbeat in heartbeats_of_job(bus.signals, self._clock, lambda: self.state):
            self.heartbeats[heartbeat.name] = heartbeat
            self.meter.on_heartbeat(heartbeat)

    def _fold(self, record: LogRecord) -> None:
        evolve(self.state, record)
        envelope = record.envelope
        self.meter.on_record(envelope, self.state)
        if isinstance(envelope.event, StopRequested) and envelope.service is Service.CLIENT:
            self.stopped_by_client = True
        self._observer.on_record(record, self.state)
        if self.state.is_final:
            self.final.set()
