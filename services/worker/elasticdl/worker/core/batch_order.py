"""Which batch comes next, and which refs are void.

A worker trains a few tasks. Batches are read ahead of the ps' answers, in order. An answer names the next batch that
*every* group of the model expects, and only the answer counts:

============================================  =========================================================
the answer to the push of batch k says        then
============================================  =========================================================
next is k + 1                                 continue; whatever was read ahead is still right
next is lower (a ps was restored)             go back: refs of the task are void, continue from the answer
next is higher (another worker trains the     skip ahead in the same way
task, too)
there is no next batch                        the task is finished
============================================  =========================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from elasticdl.shared.job.rounds import RoundKey, Rounds
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRef:
    """Names one attempt to process one batch. It is void once its task was repositioned, finished or given away.

    Attributes:
        lap: how often the task was repositioned before.
        entry: distinguishes two attempts of this worker at the same task.
    """

    task: TaskRef
    batch: int
    lap: int = 0
    entry: int = 0

    def __hash__(self) -> int:
        return hash((self.task.number, self.batch))


class AnswerMeaning(Enum):
    """What the answer to a push means for its task."""

    AS_EXPECTED = "as expected"
    """The next batch is the one after the pushed one."""
    REPOSITIONED = "repositioned"
    """The task continues elsewhere; its refs are void."""
    FINISHED = "finished"
    """Every group has absorbed every batch; the task is gone."""


class _Position:
    """Where one task is."""

    __slots__ = ("batches", "entry", "lap", "next_to_read")

    def __init__(self, *, batches: int, next_batch: int, entry: int) -> None:
        self.batches = batches
        self.next_to_read = next_batch
        self.lap = 0
        self.entry = entry


class BatchOrder:
    """The train tasks of a worker, oldest first.

    Args:
        rounds: synchronous training: batches are read in the order of their rounds; None: task after task.
    """

    def __init__(self, rounds: Rounds | None = None) -> None:
        self._rounds = rounds
        self._tasks: dict[TaskRef, _Position] = {}
        self._entries = 0
        self.changes = 0
        """How often refs of a task became void."""

    @property
    def tasks(self) -> tuple[TaskRef, ...]:
        """The tasks that were begun and are neither finished nor given away, oldest first."""
        return tuple(self._tasks)

    @property
    def has_next(self) -> bool:
        """Whether there is a batch to read."""
        return self._next_task() is not None

    def begin(self, task: TaskRef, *, batches: int, next_batch: int) -> bool:
        """Train a task from ``next_batch`` on. Returns False when the task is complete."""
        if task in self._tasks or not 0 <= next_batch <= batches:
            raise ValueError(f"task {task} can't begin at batch {next_batch} of {batches}")
        if next_batch == batches:
            return False
        self._entries += 1
        self._tasks[task] = _Position(batches=batches, next_batch=next_batch, entry=self._entries)
        return True

    def take(self) -> BatchRef | None:
        """The next batch to read, or None when that needs another task.

        A task that went back is served before those that began after it.
        """
        task = self._next_task()
        ref = self.peek(task) if task else None
        if ref is None:
            return None
        self._tasks[ref.task].next_to_read += 1
        return ref

    def peek(self, task: TaskRef) -> BatchRef | None:
        """The next batch of a task to read, which is not taken; None when all are taken or the task is gone."""
        position = self._tasks.get(task)
        if position is None or position.next_to_read == position.batches:
            return None
        return BatchRef(task=task, batch=position.next_to_read, lap=position.lap, entry=position.entry)

    @property
    def next_key(self) -> RoundKey | None:
        """Key of the batch that ``take`` would return."""
        task = self._next_task()
        return None if task is None else self.key(task, self._tasks[task].next_to_read)

    def _next_task(self) -> TaskRef | None:
        found = None
        for task, position in self._tasks.items():
            if position.next_to_read == position.batches:
                continue
            if self._rounds is None:
                return task
            key = self.key(task, position.next_to_read)
            if found is None or key < found[0]:
                found = key, task
        return found[1] if found else None

    def key(self, task: TaskRef, batch: int) -> RoundKey:
        """Sorts batches in the order in which they are trained; of equal ones the first comes first."""
        return self._rounds.key(TaskId(task.number), batch) if self._rounds else (0, 0, 0)

    def is_valid(self, ref: BatchRef) -> bool:
        """Whether the batch still has to be processed."""
        position = self._tasks.get(ref.task)
        return position is not None and position.lap == ref.lap and position.entry == ref.entry

    def is_of_current_attempt(self, ref: BatchRef) -> bool:
        """Whether the task has not left this worker since the ref was made; the ref may be void all the same."""
        position = self._tasks.get(ref.task)
        return position is not None and position.entry == ref.entry

    def answered(self, ref: BatchRef, next_batch: int) -> AnswerMeaning:
        """Process the answer to the push of a valid ref's batch.

        Args:
            next_batch: the next batch that every group expects; the number of batches: none.
        """
        position = self._tasks.get(ref.task)
        if position is None or not self.is_valid(ref):
            raise ValueError(f"{ref} is void")
        if not 0 <= next_batch <= position.batches:
            raise ValueError(f"{ref.task} has {position.batches} batches, not {next_batch}")
        if next_batch == ref.batch + 1 and next_batch < position.batches:
            return AnswerMeaning.AS_EXPECTED
        return self.reposition(ref.task, next_batch)

    def reposition(self, task: TaskRef, next_batch: int) -> AnswerMeaning:
        """Continue a task elsewhere: its refs are void. A task without a next batch is finished."""
        position = self._tasks[task]
        self.changes += 1
        if next_batch == position.batches:
            del self._tasks[task]
            return AnswerMeaning.FINISHED
        position.next_to_read = next_batch
        position.lap += 1
        return AnswerMeaning.REPOSITIONED

    def give_away(self, task: TaskRef) -> None:
        """Forget a task that failed or returns to the queue; its refs are void."""
        self._tasks.pop(task, None)
        self.changes += 1
