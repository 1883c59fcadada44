"""The event log of a running job, read along by a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Condition, Thread

from elasticdl.shared.bus import BusSettings, nats_bus
from elasticdl.shared.messages.events import Envelope, Event, TaskFinished
from elasticdl.shared.names import JobId


@dataclass(slots=True)
class TrainingLog:
    """What a job's processes have reported so far."""

    _records: list[Envelope] = field(default_factory=list)
    _changed: Condition = field(default_factory=Condition)

    def records(self) -> list[Envelope]:
        """All records so far."""
        with self._changed:
            return list(self._records)

    def wait_for_progress(self, since_s: float, workers: int, limit_s: float) -> float:
        """Wait until so many workers have each finished a task after a moment.

        Args:
            since_s: the moment, seconds since the epoch.
            workers: how many of them.
            limit_s: seconds after which the test has failed.

        Returns:
            When the last of them did.
        """

        def finished() -> list[float]:
            first: dict[str, float] = {}
            for time_s, worker in self.finished_tasks():
                if time_s > since_s:
                    first.setdefault(worker, time_s)
            return sorted(first.values())

        self.wait_for(lambda: len(finished()) >= workers, limit_s, f"{workers} workers have finished a task")
        return finished()[workers - 1]

    def wait_for(self, holds: Callable[[], bool], limit_s: float, what: str) -> None:
        """Wait until a condition on this log holds.

        Args:
            holds: whether it does.
            limit_s: seconds after which the test has failed.
            what: the condition, for the message.
        """
        with self._changed:
            is_reached = self._changed.wait_for(holds, limit_s)
        assert is_reached, f"not within {limit_s:g} s: {what}"

    def count(self, event: type[Event]) -> int:
        """How many events of a type there are."""
        return sum(isinstance(record.event, event) for record in tuple(self._records))

    def longest_pause_s(self, from_s: float, until_s: float) -> float:
        """The longest time between two moments in which no worker finished a task."""
        moments = [from_s, *(time_s for time_s, _ in self.finished_tasks() if from_s < time_s < until_s), until_s]
        return max(later - earlier for earlier, later in pairwise(moments))

    def finished_tasks(self) -> Iterator[tuple[float, str]]:
        """(time, worker) of every finished task."""
        for record in tuple(self._records):
            if isinstance(record.event, TaskFinished):
                yield record.time_s, record.name

    def _add(self, envelope: Envelope) -> None:
        with self._changed:
            self._records.append(envelope)
            self._changed.notify_all()


@contextmanager
def reading(nats_url: str, job: str) -> Iterator[TrainingLog]:
    """Read the log of a job in a thread, from its first record on, as long as the context is open."""
    log = TrainingLog()
    loop = asyncio.new_event_loop()

    async def read() -> None:
        bus = await nats_bus.connect(nats_url, JobId(job), BusSettings())
        try:
            async for record in bus.log.read(0):
                log._add(record.envelope)
        finally:
            await bus.close()

    task = loop.create_task(read())

    def run() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            loop.close()

    thread = Thread(target=run, name="training log", daemon=True)
    thread.start()
    try:
        yield log
    finally:
        while thread.is_alive():  # The client of NATS may lose a cancellation: asyncio.wait_for of Python 3.11 does.
            with contextlib.suppress(RuntimeError):  # The loop was closed just now.
                loop.call_soon_threadsafe(task.cancel)
            thread.join(timeout=0.1)
