"""The clock as a port, so that decisions can be replayed and simulated."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The time source of a shell. Cores have none: they get ``now_s`` as an argument."""

    def now(self) -> float:
        """Seconds since 1970; for timestamps, for timers in the log, and for durations between processes."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment, never decreasing; for durations."""
        ...


_ZERO_S = time.time() - time.monotonic()
"""When the monotonic clock showed 0, by the wall clock that this process has read once."""


class SystemClock:
    """The machine's clock. People and NTP may set the wall clock while a process runs; this one does not follow them.

    Args:
        zero_s: seconds since 1970 at which the monotonic clock showed 0. The processes of a machine share that clock,
            so those with the same value agree, whatever the wall clock showed when they started. 0: as this process
            has found at its start.
    """

    def __init__(self, zero_s: float = 0.0) -> None:
        self._zero_s = zero_s or _ZERO_S

    def now(self) -> float:
        """Seconds since 1970: the wall clock at the start, and the monotonic time since then."""
        return self._zero_s + time.monotonic()

    def monotonic(self) -> float:
        """Monotonic clock, seconds."""
        return time.monotonic()


class JobClock:
    """The clock of a process that continues a job, perhaps after one whose clock was ahead: its time never goes back.

    Args:
        clock: the machine's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead_s = 0.0
        """Seconds by which it is ahead of the machine's clock."""

    def continue_from(self, time_s: float) -> None:
        """Show no earlier time than this one, which the job has reached."""
        self.ahead_s = max(self.ahead_s, time_s - self._clock.now())

    @property
    def zero_s(self) -> float:
        """What makes a ``SystemClock`` on the same machine agree with it."""
        return self.now() - self.monotonic()

    def now(self) -> float:
        """Seconds since 1970, by the job."""
        return self._clock.now() + self.ahead_s

    def monotonic(self) -> float:
        """Monotonic clock, seconds."""
        return self._clock.monotonic()


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
