"""Detects a master or NATS server that hangs. Both are killed, and then restarted as after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.failure_detection.detector import SilenceWatch
from elasticdl.shared.names import LAUNCHER, MASTER, Service, new_incarnation
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.envelopes import EnvelopeFactory

HEARTBEAT_S = 1.0
TIMEOUT_S = 6.0
"""Seconds without a heartbeat after which the master counts as hung; detected within ten seconds."""


class Watchdog:
    """Publishes the launcher's heartbeats, and listens to them and to the master's.

    Args:
        bus: the job's bus.
        clock: measures time.
        kill_master: kills a master that sends no heartbeats.
        kill_broker: kills a NATS server that does not deliver the launcher's own heartbeats to it.
    """

    def __init__(
        self, bus: Bus, clock: Clock, kill_master: Callable[[], None], kill_broker: Callable[[], None]
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._kill_master = kill_master
        self._kill_broker = kill_broker
        self._envelopes = EnvelopeFactory(
            service=Service.LAUNCHER, name=LAUNCHER, incarnation=new_incarnation(), clock=clock
        )
        self._watch = SilenceWatch(own=LAUNCHER, limit_s=TIMEOUT_S, interval_s=HEARTBEAT_S)

    def master_ended(self) -> None:
        """Expect no heartbeats of the master until it sends the first."""
        self._watch.forget(MASTER)

    async def run(self) -> None:
        """Watch; never returns."""
        listening = asyncio.create_task(self._listen(), name="heartbeats of the master")
        try:
            while not listening.done():
                await self._bus.signals.beat(self._envelopes.beat({}))
                await asyncio.sleep(HEARTBEAT_S)
                for silent in self._watch.tick(self._clock.monotonic()):
                    if silent.pod == MASTER:
                        self._kill_master()
                if self._watch.deaf_s > TIMEOUT_S:
                    self._watch.excuse_deafness()
                    self._kill_broker()
            await listening
        finally:
            listening.cancel()

    async def _listen(self) -> None:
        async for beat in self._bus.signals.beats():
            if beat.name in (LAUNCHER, MASTER):
                self._watch.hear(beat.name, beat.incarnation)
