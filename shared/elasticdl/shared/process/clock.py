"""Time as a port, so that every decision can be replayed and simulated."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a shell gets the time from. Cores never ask: they are told ``now``."""

    def now(self) -> float:
        """Seconds since the epoch (wall clock); used for what people read and for timers in the log."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment, never going back; used for durations."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Wall clock, seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Monotonic clock, seconds."""
        return time.monotonic()


class VirtualClock:
    """A clock that moves only when told; both readings agree."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move forward by ``seconds`` (>= 0)."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._now_s += seconds
