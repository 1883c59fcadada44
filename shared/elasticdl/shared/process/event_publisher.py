"""Publishers of a process's events on the job's log, in order: one that waits for NATS, and a queued one."""

from __future__ import annotations

import asyncio

from elasticdl.shared.bus.ports import EVENTS_AT_ONCE_MAX, EventLog
from elasticdl.shared.bus.reading import open_run
from elasticdl.shared.messages.events import Envelope, Event
from elasticdl.shared.process.envelopes import EnvelopeFactory


class EventPublisher:
    """Appends this process's events to the job's log."""

    def __init__(self, log: EventLog, envelopes: EnvelopeFactory) -> None:
        self._log = log
        self._lock = asyncio.Lock()
        self._envelopes = envelopes

    async def publish(self, *events: Event, cause: str = "") -> None:
        """Publish events; returns once NATS has acknowledged them.

        Args:
            events: what happened. Several are stored in any order, but the last one after the others.
        """
        # The lock is held while appending: readers ignore lower numbers, but not of events that were sent together.
        async with self._lock:
            *others, last = [self._envelopes.envelope(event, cause=cause) for event in events]
            for start in range(0, len(others), EVENTS_AT_ONCE_MAX):
                await self._log.append_all(others[start : start + EVENTS_AT_ONCE_MAX])
            await self._log.append(last)
            self._envelopes.is_declared = True


class QueuedEventPublisher:
    """Appends events to the log in the order in which they were published; ``publish`` does not wait."""

    def __init__(self, log: EventLog, envelopes: EnvelopeFactory) -> None:
        self._log = log
        self._envelopes = envelopes
        self._queue: asyncio.Queue[Envelope] = asyncio.Queue()

    def publish(self, event: Event, cause: str = "") -> None:
        """Queue an event; to be called on the loop's thread."""
        self._queue.put_nowait(self._envelopes.envelope(event, cause=cause))

    async def open(self, event: Event) -> None:
        """Append the first event of a run at once; only while the queue is empty."""
        await open_run(self._log, self._envelopes.envelope(event))

    async def run(self) -> None:
        """Append queued events; never returns."""
        while True:
            await self._log.append(await self._queue.get())
            self._queue.task_done()

    async def flush(self) -> None:
        """Wait until all events queued so far are on the log. ``run`` has to be running."""
        await self._queue.join()
