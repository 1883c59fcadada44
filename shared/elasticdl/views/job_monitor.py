"""Follows a job: its state as its event log grows, and the heartbeats of its processes."""

from __future__ import annotations

import asyncio
from typing import Protocol

from elasticdl.master.core import State
from elasticdl.shared.bus.ports import Bus, EventLog
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.events import LogRecord, StopRequested
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.clock import Clock
from elasticdl.views.heartbeats import heartbeats_of_job
from elasticdl.views.reading import Reading, following
from elasticdl.views.run_meter import RunMeter


class RecordObserver(Protocol):
    """Is called about the event log of a job."""

    def on_start(self, state: State) -> None:
        """``state`` is what happened before; its ``seq`` is 0 for a new job."""
        ...

    def on_record(self, record: LogRecord, state: State) -> None:
        """A record was folded into ``state``."""
        ...


class JobMonitor:
    """A job that is followed from now on. For exact numbers at its end use ``reading.exact``.

    Args:
        observer: is called for every record.
        past: the job before the first record.
    """

    def __init__(self, observer: RecordObserver, past: Reading, clock: Clock) -> None:
        self.state = past.state
        self.heartbeats: dict[PodName, Heartbeat] = {}
        self.final = asyncio.Event()
        self.stopped_by_client = False
        self._observer = observer
        self._clock = clock
        self._past = past
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
        async for record in following(log, self._past):
            envelope = record.envelope
            self.meter.on_record(envelope, self.state)
            if isinstance(envelope.event, StopRequested) and envelope.service is Service.CLIENT:
                self.stopped_by_client = True
            self._observer.on_record(record, self.state)
            if self.state.is_final:
                self.final.set()

    async def listen(self, bus: Bus) -> None:
        """Listen to the heartbeats of the job's processes; never returns."""
        async for heartbeat in heartbeats_of_job(bus.signals, self._clock, lambda: self.state):
            self.heartbeats[heartbeat.name] = heartbeat
            self.meter.on_heartbeat(heartbeat)
