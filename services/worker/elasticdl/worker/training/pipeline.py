"""Which batch comes next: the decision core of a worker's training loop, without threads, data or network.

A worker holds a few train tasks. Batches are prepared ahead of the ps' answers, in order; an answer says which batch of
the task *every* group of the model still lacks, and only that is believed:

====================================  =================================================================
the answer says that batch k + 1 ...  then
====================================  =================================================================
is next                               go on; whatever was prepared ahead is still right
is too far (a ps was restored)        go back: prepared batches are void, prepare from the answer's batch
was absorbed already (another worker  go forward in the same way
works on the same task)
does not exist                        the task is finished
====================================  =================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from elasticdl.shared.names import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The right to prepare and compute one batch; void once its task went back, forward or away.

    Attributes:
        task: the task.
        batch: number of the batch in the task.
        lap: how often the task's place was corrected before.
        entry: tells two stays of the same task in one worker apart.
    """

    task: TaskId
    batch: int
    lap: int = 0
    entry: int = 0


class Progress(Enum):
    """What an answer of the ps means for a task."""

    ON = "on"
    """As expected."""
    MOVED = "moved"
    """The task's place was corrected; its tickets are void."""
    FINISHED = "finished"
    """Every group has absorbed every batch; the task is no longer held."""


class _Held:
    """Where one task stands."""

    __slots__ = ("batches", "entry", "lap", "to_prepare")

    def __init__(self, *, batches: int, next_batch: int, entry: int) -> None:
        self.batches = batches
        self.to_prepare = next_batch
        """Next batch to hand out a ticket for."""
        self.lap = 0
        self.entry = entry


class Pipeline:
    """The tasks that a worker holds, oldest first."""

    def __init__(self) -> None:
        self._held: dict[TaskId, _Held] = {}
        self._entries = 0

    @property
    def held(self) -> tuple[TaskId, ...]:
        """The tasks that were begun and are neither finished nor given away, oldest first."""
        return tuple(self._held)

    def begin(self, task: TaskId, *, batches: int, next_batch: int) -> bool:
        """Hold a task from ``next_batch`` on.

        Returns:
            False when there is nothing to do: the task is complete.

        Raises:
            ValueError: the task is held already, or the numbers can't be.
        """
        if task in self._held or not 0 <= next_batch <= batches:
            raise ValueError(f"task {task} can't begin at batch {next_batch} of {batches}")
        if next_batch == batches:
            return False
        self._entries += 1
        self._held[task] = _Held(batches=batches, next_batch=next_batch, entry=self._entries)
        return True

    def take_ticket(self) -> Ticket | None:
        """The next batch to prepare, or None when another task is needed for that.

        A task that had to go back is served before those that were begun after it.
        """
        for task, held in self._held.items():
            if held.to_prepare < held.batches:
                ticket = Ticket(task=task, batch=held.to_prepare, lap=held.lap, entry=held.entry)
                held.to_prepare += 1
                return ticket
        return None

    def is_valid(self, ticket: Ticket) -> bool:
        """Whether the ticket's batch is still to be computed."""
        held = self._held.get(ticket.task)
        return held is not None and (held.lap, held.entry) == (ticket.lap, ticket.entry)

    def answered(self, ticket: Ticket, next_batch: int) -> Progress:
        """Take note of the ps' answer to the push of a valid ticket's batch.

        Args:
            ticket: whose batch was pushed.
            next_batch: the first batch of the task that some group lacks; the number of batches: none.

        Raises:
            ValueError: the ticket is void, or there is no such batch.
        """
        held = self._held.get(ticket.task)
        if held is None or not self.is_valid(ticket):
            raise ValueError(f"{ticket} is void")
        if not 0 <= next_batch <= held.batches:
            raise ValueError(f"task {ticket.task} has {held.batches} batches, not {next_batch}")
        if next_batch == held.batches:
            del self._held[ticket.task]
            return Progress.FINISHED
        if next_batch == ticket.batch + 1:
            return Progress.ON
        held.to_prepare = next_batch
        held.lap += 1
        return Progress.MOVED

    def give_away(self, task: TaskId) -> None:
        """Forget a task: it failed or goes back to the queue; its tickets are void."""
        self._held.pop(task, None)
