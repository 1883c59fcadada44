"""Publishes a process's events on the job's log, in order and from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from elasticdl.shared.messages.events import Envelope, Event
from elasticdl.shared.process.envelopes import EnvelopeFactory


class EventPublisher:
    """Appends this process's events to the job's log. Any thread may publish, except the one that ``append`` needs.

    Args:
        append: stores an envelope and returns once NATS has acknowledged it.
        envelopes: creates the envelopes.
    """

    def __init__(self, append: Callable[[Envelope], object], envelopes: EnvelopeFactory) -> None:
        self._append = append
        self._lock = threading.Lock()
        self._envelopes = envelopes

    def publish(self, event: Event, *, cause: str = "") -> None:
        """Publish an event; returns once NATS has acknowledged it.

        Args:
            event: what happened.
            cause: id of the event or order that led to it.

        Raises:
            TransientError: NATS was unreachable for longer than the settings allow.
            PermanentError: the log is full or gone.
        """
        # The lock is held while appending, so that the numbers arrive in order: readers ignore lower ones.
        with self._lock:
            self._append(self._envelopes.envelope(event, cause=cause))
