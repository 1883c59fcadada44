"""Time as a port, so that decisions can be replayed and simulated."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The time source of a shell. Cores have none: they get ``now_s`` as an argument."""

    def now(self) -> float:
        """Seconds since 1970 (wall clock); for timestamps and for timers in the log."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment, never decreasing; for durations."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Wall clock, seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Monotonic clock, seconds."""
        return time.monotonic()


class VirtualClock:
    """A clock that only ``advance`` moves; both readings agree."""

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
