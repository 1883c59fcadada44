"""Keeping hold of deliveries: as long as work moves on, and not a moment longer."""

from __future__ import annotations

import threading

import structlog

from elasticdl.shared.errors import TransientError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.process.clock import Clock
from elasticdl.worker.ports import Delivery

_log = structlog.get_logger()


class Leases:
    """The deliveries that this worker holds; any thread may call.

    A delivery is extended only while the last progress is younger than the batch deadline: a worker that hangs in the
    user's code, in a read or in a push loses its tasks to somebody else.

    Args:
        lease_s: seconds after which the broker delivers an unextended task again.
        batch_deadline_s: seconds that one batch may take.
        clock: monotonic time.
    """

    def __init__(self, *, lease_s: float, batch_deadline_s: float, clock: Clock) -> None:
        self.interval_s = lease_s / 3
        """Seconds between two calls of ``extend``."""
        self._batch_deadline_s = batch_deadline_s
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[TaskRef, list[Delivery]] = {}
        self._progress_s = clock.monotonic()
        self.progressed = 0
        """How often there was progress."""

    def hold(self, delivery: Delivery) -> None:
        """Begin to keep a delivery alive. One task may come twice: a lost lease, a second dispatch."""
        with self._lock:
            if not self._held:
                self._progress_s = self._clock.monotonic()
            self._held.setdefault(delivery.message.task, []).append(delivery)

    def holds(self, task: TaskRef) -> bool:
        """Whether a delivery of this task is held."""
        with self._lock:
            return task in self._held

    def release(self, task: TaskRef) -> list[Delivery]:
        """Stop keeping a task's deliveries alive; whoever gets a delivery here is the only one who does."""
        with self._lock:
            return self._held.pop(task, [])

    def release_all(self) -> list[Delivery]:
        """Stop keeping anything alive."""
        with self._lock:
            held = [delivery for deliveries in self._held.values() for delivery in deliveries]
            self._held.clear()
            return held

    def progress(self) -> None:
        """A batch is done, or the next one begins after a pause that was nobody's fault."""
        self._progress_s = self._clock.monotonic()
        self.progressed += 1

    def extend(self) -> int:
        """Extend every delivery, unless work stands still.

        Returns:
            The number of deliveries that were extended.
        """
        if self._clock.monotonic() - self._progress_s >= self._batch_deadline_s:
            return 0
        with self._lock:
            held = [delivery for deliveries in self._held.values() for delivery in deliveries]
        for delivery in held:
            try:
                delivery.extend()
            except TransientError as error:  # The broker is away; it may be back before the lease ends.
                _log.warning("lease not extended", task=str(delivery.message.task), reason=str(error))
        return len(held)
