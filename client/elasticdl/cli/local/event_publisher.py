"""The launcher's own envelopes on the event log."""

from __future__ import annotations

import asyncio

from elasticdl.shared.bus.opening import open_run
from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.messages.events import Envelope, Event
from elasticdl.shared.names import PodName, Service, new_incarnation
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.envelopes import EnvelopeFactory


class QueuedEventPublisher:
    """Appends events in the order in which they were noted, numbered within one incarnation.

    Args:
        log: the job's log.
        clock: for the time of each event.
        service: who speaks.
        name: under which name.
    """

    def __init__(self, log: EventLog, clock: Clock, service: Service, name: PodName) -> None:
        self._log = log
        self._envelopes = EnvelopeFactory(service=service, name=name, incarnation=new_incarnation(), clock=clock)
        self._waiting: asyncio.Queue[Envelope] = asyncio.Queue()

    def note(self, event: Event, cause: str = "") -> None:
        """Have an event appended after those noted before; on the loop's thread."""
        self._waiting.put_nowait(self._envelopes.envelope(event, cause=cause))

    async def open(self, event: Event) -> None:
        """Append the first word of a run at once; only while nothing noted waits.

        Raises:
            TransientError: the broker stayed away.
            PermanentError: the log is full or gone.
        """
        await open_run(self._log, self._envelopes.envelope(event))

    async def run(self) -> None:
        """Append for ever.

        Raises:
            TransientError: the broker stayed away.
            PermanentError: the log is full or gone.
        """
        while True:
            await self._log.append(await self._waiting.get())
            self._waiting.task_done()

    async def flush(self) -> None:
        """Wait until everything noted so far is on the log; needs ``run`` at work."""
        await self._waiting.join()
