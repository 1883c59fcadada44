"""Runs the core's timers: appends TimerFired to the log when a timer is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from elasticdl.shared.messages.events import TimerFired
from elasticdl.shared.process.clock import Clock


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
