"""Receives the heartbeats of a job's processes for its meters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import structlog

from elasticdl.master.core import State
from elasticdl.master.core.identity import has_sent
from elasticdl.shared.bus.ports import Signals
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.sender_times import agreed_s
from elasticdl.shared.names import LAUNCHER, MASTER, NOBODY, Incarnation
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.repeated_lines import RepeatedLines

_log = structlog.get_logger()


async def heartbeats_of_job(
    signals: Signals, clock: Clock, state: Callable[[], State], own: Incarnation = NOBODY
) -> AsyncIterator[Heartbeat]:
    """The heartbeats of the job's workers and ps, with times that can be compared with those of its records.

    Args:
        signals: delivers the heartbeats of all processes, also of those that the job does not have.
        own: the receiver's own heartbeats count, too; none: it sends none.
    """
    lines = RepeatedLines(_log)
    async for heartbeat in signals.heartbeats():
        if has_sent(state(), heartbeat) or heartbeat.incarnation == own != NOBODY:
            yield replace(heartbeat, time_s=agreed_s(heartbeat.time_s, clock.now()))
        elif heartbeat.name not in {*state().pods, MASTER, LAUNCHER}:
            lines.warning("a heartbeat names a process that the job does not have", process=heartbeat.name)
