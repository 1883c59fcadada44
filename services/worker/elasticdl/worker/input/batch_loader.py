"""The reader thread: takes tasks, reads, feeds, finds ids, ahead of the training step."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.messages.events import FailureKind, RunningBatch, TaskTaken
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.worker.failures import Failure, of_user_error
from elasticdl.worker.input.bad_record import feed_naming_records
from elasticdl.worker.input.records import TaskRecords
from elasticdl.worker.input.table_ids import table_ids
from elasticdl.worker.ports import Delivery, Feeder, TableIds, Tasks
from elasticdl.worker.ps_client import TaskProgress
from elasticdl.worker.training.context import WorkContext
from elasticdl.worker.training.leased_tasks import train_task
from elasticdl.worker.training.pipeline import Ticket
from elasticdl.worker.training.tallies import Stopwatch

READ_AHEAD = 1
"""Prepared batches that may wait; with the one that is being pulled the read-ahead is two batches deep."""
_POLL_S = 0.2
"""How often a blocked thread looks whether it shall stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A batch that lacks nothing but the model.

    Attributes:
        ticket: which batch.
        batch: tensors, or None when the user's filter dropped every record.
        records: raw records.
        checksum: sum of their hashes modulo 2**64.
        tables: ids by table.
        seconds: phase -> seconds.
    """

    ticket: Ticket
    batch: Any
    records: int
    checksum: int
    tables: Mapping[str, TableIds]
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """A task of another purpose than training."""

    delivery: Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """A train task that the ps had absorbed already."""

    task: TaskId
    standing: TaskProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulty:
    """A batch that the data or the user's feed makes impossible."""

    ticket: Ticket
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A batch that storage does not give at the moment."""

    ticket: Ticket
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fatal:
    """The thread died of this."""

    error: BaseException = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dry:
    """The queue is empty: no batch will follow soon."""


Errand = Aside | Complete | Faulty | Unreadable | Fatal
"""What the main thread does between two batches."""
Item = Prepared | Errand | Dry


class Preparer:
    """Fills ``items`` in the order in which the pipeline hands out tickets.

    Args:
        context: what the threads share.
        tasks: where more tasks come from.
        records: reads the training data; used by this thread only.
        feeder: the user's feed for training; used by this thread only.
        idle_poll_s: seconds between looks at a queue that was found empty.
        patience_s: seconds to wait for another task before saying that there is none. A batch is pushed only after the
            next one's pull, so that a seeded run does not depend on timing; this bounds that wait.
    """

    def __init__(
        self,
        context: WorkContext,
        *,
        tasks: Tasks,
        records: TaskRecords,
        feeder: Feeder,
        idle_poll_s: float = 1.0,
        patience_s: float = 1.0,
    ) -> None:
        self.items: queue.Queue[Item] = queue.Queue(maxsize=READ_AHEAD)
        self._held = context.held
        self._tasks = tasks
        self._records = records
        self._feeder = feeder
        self._model = context.model
        self._ps = context.ps
        self._publisher = context.publisher
        self._hand = context.hand
        self._stop = context.stop
        self._idle_poll_s = idle_poll_s
        self._patience_s = patience_s
        self._dry = False
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end after a stop."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._stop.is_asked():
                item = self._next()
                if item is not None:
                    self._put(item)
        except BaseException as error:  # Whatever it is, the main thread decides what to do about it.
            self._put(Fatal(error=error))

    def _put(self, item: Item) -> None:
        while not self._stop.is_asked():
            try:
                self.items.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return

    def _next(self) -> Item | None:
        ticket = self._held.take_ticket()
        if ticket is not None:
            self._dry = False  # Also when a task had to go back: its last batch waits for a word on what follows.
            with self._hand.holding(RunningBatch(task=train_task(ticket.task), batch=ticket.batch)):
                return self._prepare(ticket)
        delivery = self._tasks.take(self._idle_poll_s if self._dry else self._patience())
        if delivery is not None:
            if self._stop.is_asked():  # While this thread waited; the goodbye may be said already.
                delivery.nak()
                return None
            self._dry = False
            return self._begin(delivery)
        if self._dry:
            return None
        self._dry = True
        return Dry()

    def _patience(self) -> float:
        """Nothing follows the plan's last task, so its last batch need not wait for a successor."""
        last = TaskId(self._records.plan.tasks - 1)
        return 0.0 if last in self._held.train_tasks else self._patience_s

    def _begin(self, delivery: Delivery) -> Item | None:
        message = delivery.message
        self._publisher.publish(
            TaskTaken(task=message.task, dispatch=message.dispatch, attempt=delivery.attempt, reply=delivery.reply),
            cause=message.message_id,
        )
        known = self._held.hold(delivery)
        if known or message.task.purpose is not Purpose.TRAIN:
            return None if known else Aside(delivery=delivery)
        task = TaskId(message.task.number)
        batches = self._records.plan.batches_of(task)
        standing = self._ps.next_batch(task, batches)
        if self._held.begin(task, batches=batches, next_batch=standing.next_batch):
            return None
        return Complete(task=task, standing=standing)

    def _prepare(self, ticket: Ticket) -> Item:
        watch = Stopwatch()
        try:
            with watch.timed("read"):
                raw = self._records.batch(ticket.task, ticket.batch)
        except TransientError as error:
            return Unreadable(ticket=ticket, reason=str(error))
        except UserError as error:
            return Faulty(ticket=ticket, failure=of_user_error(error, FailureKind.DATA))
        try:
            with watch.timed("feed"):
                batch, tables = feed_naming_records(
                    self._feeder, self._records, ticket.task, raw, partial(table_ids, self._model, training=True)
                )
        except UserError as error:
            return Faulty(ticket=ticket, failure=of_user_error(error, FailureKind.USER_CODE))
        return Prepared(
            ticket=ticket,
            batch=batch,
            records=raw.count,
            checksum=raw.checksum,
            tables=tables,
            seconds=watch.seconds,
        )
