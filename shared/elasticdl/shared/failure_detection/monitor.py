"""Receives heartbeats and reports the processes that the failure detector suspects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elasticdl.shared.bus.ports import Signals
from elasticdl.shared.failure_detection.detector import FailureDetector, MissedHeartbeats
from elasticdl.shared.process.clock import Clock


class HeartbeatMonitor:
    """Monitors the heartbeats of a job. The observer has to send heartbeats, too: see ``detector.py``.

    Args:
        on_tick: called once per interval with the processes that have failed since the last call.
        expect: called before it; tells the detector which processes should send heartbeats, so that it also finds those
            that ended before the observer started.
    """

    def __init__(
        self,
        signals: Signals,
        clock: Clock,
        detector: FailureDetector,
        on_tick: Callable[[list[MissedHeartbeats]], None],
        expect: Callable[[], None] | None = None,
    ) -> None:
        self._signals = signals
        self._clock = clock
        self._detector = detector
        self._on_tick = on_tick
        self._expect = expect

    async def run(self, interval_s: float) -> None:
        """Monitor until cancelled."""
        receiving = asyncio.create_task(self._receive(), name="heartbeats")
        try:
            while not receiving.done():
                await asyncio.sleep(interval_s)
                if self._expect:
                    self._expect()
                self._on_tick(self._detector.tick(self._clock.monotonic()))
            await receiving
        finally:
            receiving.cancel()

    async def _receive(self) -> None:
        async for heartbeat in self._signals.heartbeats():
            self._detector.on_heartbeat(heartbeat.name, heartbeat.incarnation)
