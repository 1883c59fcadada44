"""Notices a frozen master or broker, which nobody else could: both are ended, and come back as after any death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.failure_detection.detector import SilenceWatch
from elasticdl.shared.names import LAUNCHER, MASTER, Service, new_incarnation
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.envelopes import EnvelopeFactory

BEAT_S = 1.0
SILENCE_S = 6.0
"""Seconds of silence after which the master counts as frozen; noticed within ten seconds."""


class Watchdog:
    """Beats in the launcher's name, and listens.

    Args:
        bus: the job's bus.
        clock: for the time that passes.
        end_master: ends a master that does not beat.
        end_broker: ends a broker through which the launcher does not even hear itself.
    """

    def __init__(self, bus: Bus, clock: Clock, end_master: Callable[[], None], end_broker: Callable[[], None]) -> None:
        self._bus = bus
        self._clock = clock
        self._end_master = end_master
        self._end_broker = end_broker
        self._envelopes = EnvelopeFactory(
            service=Service.LAUNCHER, name=LAUNCHER, incarnation=new_incarnation(), clock=clock
        )
        self._watch = SilenceWatch(own=LAUNCHER, limit_s=SILENCE_S, interval_s=BEAT_S)

    def master_ended(self) -> None:
        """Nobody expects to hear the master until it beats again."""
        self._watch.forget(MASTER)

    async def run(self) -> None:
        """Watch for ever."""
        hearing = asyncio.create_task(self._hear(), name="heartbeats of the master")
        try:
            while not hearing.done():
                await self._bus.signals.beat(self._envelopes.beat({}))
                await asyncio.sleep(BEAT_S)
                for silent in self._watch.tick(self._clock.monotonic()):
                    if silent.pod == MASTER:
                        self._end_master()
                if self._watch.deaf_s > SILENCE_S:
                    self._watch.excuse_deafness()
                    self._end_broker()
            await hearing
        finally:
            hearing.cancel()

    async def _hear(self) -> None:
        async for beat in self._bus.signals.beats():
            if beat.name in (LAUNCHER, MASTER):
                self._watch.hear(beat.name, beat.incarnation)
