"""Follows a job: its state as its event log grows, and the heartbeats of its processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from elasticdl.master.core import State
from elasticdl.master.core.identity import has_sent
from elasticdl.shared.bus.ports import Bus, EventLog, Signals
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.events import LogRecord, StopRequested
from elasticdl.shared.messages.sender_times import agreed_s
from elasticdl.shared.names import LAUNCHER, MASTER, NOBODY, Incarnation, PodName, Service
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.repeated_lines import RepeatedLines
from elasticdl.views.reading import Reading, following
from elasticdl.views.run_meter import RunMeter

_log = get_logger()
_KNOWN_AFTER_S = 10.0
"""A process may send its first heartbeats before the log says that it was started."""
_UNKNOWN_MAX = 1024


class JobMonitor:
    """A job that is followed from now on. For exact numbers at its end use ``reading.exact``.

    Args:
        past: the job before the first record.
        on_record: is called for every record, once it is applied.
    """

    def __init__(self, past: Reading, clock: Clock, on_record: Callable[[LogRecord, State], None]) -> None:
        self.state = past.state
        self.heartbeats: dict[PodName, Heartbeat] = {}
        self.final = asyncio.Event()
        self.stopped_by_client = False
        self._past = past
        self._clock = clock
        self._on_record = on_record
        self.meter = RunMeter()

    async def follow(self, log: EventLog) -> None:
        """Read the log; never returns."""
        async for record in following(log, self._past):
            envelope = record.envelope
            self.meter.on_record(envelope, self.state)
            if isinstance(envelope.event, StopRequested) and envelope.service is Service.CLIENT:
                self.stopped_by_client = True
            self._on_record(record, self.state)
            if self.state.is_final:
                self.final.set()

    async def listen(self, bus: Bus) -> None:
        """Listen to the heartbeats of the job's processes; never returns."""
        async for heartbeat in heartbeats_of_job(bus.signals, self._clock, lambda: self.state):
            self.heartbeats[heartbeat.name] = heartbeat
            self.meter.on_heartbeat(heartbeat)


async def heartbeats_of_job(
    signals: Signals, clock: Clock, state: Callable[[], State], own: Incarnation = NOBODY
) -> AsyncIterator[Heartbeat]:
    """The heartbeats of the job's workers and ps, with times that can be compared with those of its records.

    Args:
        signals: delivers the heartbeats of all processes, also of those that the job does not have.
        own: the receiver's own heartbeats count, too; none: it sends none.
    """
    lines = RepeatedLines(_log)
    unknown: dict[PodName, float] = {}
    async for heartbeat in signals.heartbeats():
        if has_sent(state(), heartbeat) or heartbeat.incarnation == own != NOBODY:
            yield replace(heartbeat, time_s=agreed_s(heartbeat.time_s, clock.now()))
        elif heartbeat.name in {*state().pods, MASTER, LAUNCHER}:
            unknown.pop(heartbeat.name, None)
        elif len(unknown) < _UNKNOWN_MAX and heartbeat.name not in unknown:
            unknown[heartbeat.name] = clock.now()
        elif clock.now() - unknown.get(heartbeat.name, 0.0) >= _KNOWN_AFTER_S:
            lines.warning("a heartbeat names a process that the job does not have", process=heartbeat.name)
