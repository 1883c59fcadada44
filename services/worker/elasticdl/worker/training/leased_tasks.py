"""The tasks in hand, with their deliveries: what the reader thread and the main thread share."""

from __future__ import annotations

import threading

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.worker.ports import Delivery
from elasticdl.worker.training.leases import Leases
from elasticdl.worker.training.pipeline import Pipeline, Progress, Ticket


def train_task(number: TaskId) -> TaskRef:
    """The reference of a train task."""
    return TaskRef(purpose=Purpose.TRAIN, number=number)


class HeldTasks:
    """The pipeline and the leases under one lock.

    A task leaves both in one step. Otherwise a second delivery of it could be kept alive for ever by a worker that has
    just finished it.
    """

    def __init__(self, leases: Leases) -> None:
        self._lock = threading.Lock()
        self._pipeline = Pipeline()
        self._leases = leases

    @property
    def train_tasks(self) -> tuple[TaskId, ...]:
        """The train tasks that were begun, oldest first."""
        with self._lock:
            return self._pipeline.held

    def hold(self, delivery: Delivery) -> bool:
        """Keep a delivery.

        Returns:
            Whether its task is in hand already; then both deliveries share its fate.
        """
        task = delivery.message.task
        with self._lock:
            known = self._leases.holds(task)
            self._leases.hold(delivery)
            return known

    def begin(self, task: TaskId, *, batches: int, next_batch: int) -> bool:
        """See ``Pipeline.begin``."""
        with self._lock:
            return self._pipeline.begin(task, batches=batches, next_batch=next_batch)

    def take_ticket(self) -> Ticket | None:
        """See ``Pipeline.take_ticket``."""
        with self._lock:
            return self._pipeline.take_ticket()

    def is_valid(self, ticket: Ticket) -> bool:
        """See ``Pipeline.is_valid``."""
        with self._lock:
            return self._pipeline.is_valid(ticket)

    def answered(self, ticket: Ticket, next_batch: int) -> tuple[Progress, list[Delivery]]:
        """See ``Pipeline.answered``; the deliveries to acknowledge once the task is finished."""
        with self._lock:
            progress = self._pipeline.answered(ticket, next_batch)
            finished = progress is Progress.FINISHED
            return progress, self._leases.release(train_task(ticket.task)) if finished else []

    def give_away(self, task: TaskRef) -> list[Delivery]:
        """Forget a task; its deliveries are the caller's to answer."""
        with self._lock:
            if task.purpose is Purpose.TRAIN:
                self._pipeline.give_away(TaskId(task.number))
            return self._leases.release(task)

    def give_away_all(self) -> list[Delivery]:
        """Forget everything; the deliveries are the caller's to answer."""
        with self._lock:
            for task in self._pipeline.held:
                self._pipeline.give_away(task)
            return self._leases.release_all()
