"""Detects a master or NATS server that hangs. Both are killed, and then restarted as after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.failure_detection.detector import FailureDetector, MissedHeartbeats
from elasticdl.shared.failure_detection.heartbeat_loop import send_heartbeats
from elasticdl.shared.failure_detection.heartbeats import HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S
from elasticdl.shared.failure_detection.monitor import HeartbeatMonitor
from elasticdl.shared.names import LAUNCHER, MASTER, Service
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.envelopes import EnvelopeFactory


class Watchdog:
    """Sends the launcher's heartbeats, and monitors them and the master's.

    Args:
        kill_broker: kills a NATS server that does not deliver the launcher's own heartbeats to it.
    """

    def __init__(
        self, bus: Bus, clock: Clock, kill_master: Callable[[], None], kill_broker: Callable[[], None]
    ) -> None:
        self._bus = bus
        self._kill_master = kill_master
        self._kill_broker = kill_broker
        self._envelopes = EnvelopeFactory(service=Service.LAUNCHER, name=LAUNCHER, clock=clock)
        self._detector = FailureDetector(
            own=LAUNCHER, timeout_s=HEARTBEAT_TIMEOUT_S, interval_s=HEARTBEAT_INTERVAL_S, unannounced=(MASTER,)
        )
        self._monitor = HeartbeatMonitor(bus.signals, clock, self._detector, self._on_tick)

    def master_ended(self) -> None:
        """Expect no heartbeats of the master until it sends the first."""
        self._detector.forget(MASTER)

    async def run(self) -> None:
        """Watch; never returns."""
        sending = asyncio.create_task(
            send_heartbeats(self._bus.signals, self._envelopes, HEARTBEAT_INTERVAL_S), name="heartbeats"
        )
        try:
            await self._monitor.run(HEARTBEAT_INTERVAL_S)
        finally:
            sending.cancel()

    def _on_tick(self, missed: list[MissedHeartbeats]) -> None:
        if any(each.pod == MASTER for each in missed):
            self._kill_master()
        if self._detector.broker_timed_out():
            self._kill_broker()
