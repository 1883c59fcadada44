"""A process' own line of events: numbered, stamped and appended in order, from whichever thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from elasticdl.shared.messages.events import Envelope, Event
from elasticdl.shared.process.envelopes import EnvelopeFactory


class EventPublisher:
    """Appends this process' events to the job's log; any thread may that does not keep ``append`` from its work.

    Args:
        append: stores an envelope and returns once that is acknowledged.
        envelopes: numbers the events.
    """

    def __init__(self, append: Callable[[Envelope], object], envelopes: EnvelopeFactory) -> None:
        self._append = append
        self._lock = threading.Lock()
        self._envelopes = envelopes

    def publish(self, event: Event, *, cause: str = "") -> None:
        """Store an event; returns once the log has acknowledged it.

        Args:
            event: what happened.
            cause: id of what led to it.

        Raises:
            TransientError: the broker stayed away longer than its settings allow.
            PermanentError: the log is full or gone.
        """
        # The lock is held while appending so that the log sees the numbers in order: readers ignore lower ones.
        with self._lock:
            self._append(self._envelopes.envelope(event, cause=cause))
