"""A worker's own line of events: numbered, stamped and appended in order."""

from __future__ import annotations

import threading
from collections.abc import Callable

from elasticdl.shared.clock import Clock
from elasticdl.shared.events import Envelope, Event
from elasticdl.shared.names import Incarnation, PodName, Service
from elasticdl.shared.voice import Voice


class Journal:
    """Appends this process' events to the job's log; any thread may.

    Args:
        append: stores an envelope and returns once that is acknowledged.
        name: this process.
        incarnation: this life of it.
        clock: for the envelope's time.
    """

    def __init__(
        self, append: Callable[[Envelope], object], *, name: PodName, incarnation: Incarnation, clock: Clock
    ) -> None:
        self._append = append
        self._lock = threading.Lock()
        self.voice = Voice(service=Service.WORKER, name=name, incarnation=incarnation, clock=clock)

    def append(self, event: Event, *, cause: str = "") -> None:
        """Store an event; returns once the log has acknowledged it.

        Args:
            event: what happened.
            cause: id of what led to it.

        Raises:
            TransientError: the log can't be reached and the adapter gave up.
        """
        # The lock is held while appending so that the log sees the numbers in order: readers ignore lower ones.
        with self._lock:
            self._append(self.voice.envelope(event, cause=cause))
