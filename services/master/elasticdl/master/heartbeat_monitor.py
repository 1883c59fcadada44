"""Listens to heartbeats and reports who has fallen silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.failure_detection.detector import SilenceWatch
from elasticdl.shared.messages.events import Event, SilenceNoticed
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.process.clock import Clock


async def listen(
    bus: Bus,
    clock: Clock,
    watch: SilenceWatch,
    interval_s: float,
    expected: Callable[[], Collection[tuple[PodName, Incarnation]]],
    report: Callable[[Event], None],
) -> None:
    """Listen for ever.

    Args:
        bus: where heartbeats come from.
        clock: for the time that passes.
        watch: decides who is silent.
        interval_s: seconds between two looks.
        expected: who should be beating; one that was dead before we began to listen is found by it, too.
        report: takes SilenceNoticed.
    """

    async def hear() -> None:
        async for beat in bus.signals.beats():
            watch.hear(beat.name, beat.incarnation)

    hearing = asyncio.create_task(hear(), name="heartbeats")
    try:
        while not hearing.done():
            await asyncio.sleep(interval_s)
            ought = expected()
            for pod, incarnation in ought:
                watch.expect(pod, incarnation)
            for silent in watch.tick(clock.monotonic()):
                if (silent.pod, silent.incarnation) in ought:
                    report(SilenceNoticed(pod=silent.pod, incarnation=silent.incarnation, silent_s=silent.silent_s))
        await hearing
    finally:
        hearing.cancel()
