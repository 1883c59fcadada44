"""When something that failed is tried again: growing pauses, and how often is too often. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses that double from the first to the longest, in seconds."""

    first_s: float
    max_s: float

    def pause_s(self, failures: int) -> float:
        """The pause after this many failures in a row, 1 or more."""
        return min(self.first_s * 2.0 ** (failures - 1), self.max_s)

    def pauses(self) -> Iterator[float]:
        """The pause after each failure in a row, without end."""
        pause_s = self.first_s
        while True:
            yield pause_s
            pause_s = min(2 * pause_s, self.max_s)


class RecentFailures:
    """Counts failures, each for ``window_s`` seconds."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._failures: deque[float] = deque()

    def count(self, now_s: float) -> int:
        """Note a failure now; returns how many there were recently, this one included."""
        while self._failures and now_s - self._failures[0] >= self._window_s:
            self._failures.popleft()
        self._failures.append(now_s)
        return len(self._failures)
