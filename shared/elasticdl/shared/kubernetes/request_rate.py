"""A limit on the requests per second, so that one job never overloads an API server."""

from __future__ import annotations

import threading
import time

REQUESTS_PER_SECOND_MAX = 40.0
REQUESTS_AT_ONCE_MAX = 10


class RequestRate:
    """A token bucket for any number of threads; ``at_once``: requests without delay after a pause."""

    def __init__(self, per_second: float = REQUESTS_PER_SECOND_MAX, at_once: int = REQUESTS_AT_ONCE_MAX) -> None:
        self._interval_s = 1 / per_second
        self._burst_s = (at_once - 1) * self._interval_s
        self._next_s = 0.0
        self._lock = threading.Lock()

    def delay_s(self, now_s: float) -> float:
        """Take a place for one request, and say how many seconds from now it is."""
        with self._lock:
            self._next_s = max(self._next_s, now_s - self._burst_s) + self._interval_s
            return max(self._next_s - self._interval_s - now_s, 0.0)

    def wait(self) -> None:
        """Sleep until one more request may be sent."""
        delay_s = self.delay_s(time.monotonic())
        if delay_s:
            time.sleep(delay_s)
