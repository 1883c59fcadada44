"""What reading through a cache has cost."""

from __future__ import annotations

import threading


class CacheUsage:
    """Sums since the start of the process; any thread may add and read.

    Attributes:
        requests: requests to object storage, those for etags too.
        fetched_bytes: bytes that object storage has sent.
        cached_bytes: bytes that the disk has given in their place.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.fetched_bytes = 0
        self.cached_bytes = 0
        self._lock = threading.Lock()

    def add(self, *, requests: int = 0, fetched_bytes: int = 0, cached_bytes: int = 0) -> None:
        """Count."""
        with self._lock:
            self.requests += requests
            self.fetched_bytes += fetched_bytes
            self.cached_bytes += cached_bytes
