"""Training tasks: which were dispatched, what every parameter server is credited with, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

from elasticdl.master.core.training.statistics import EpochTotals, TrainingStatistics
from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.events import Envelope, TaskFinished, TaskReturned
from elasticdl.shared.names import NOBODY, Incarnation, PodName, TaskId

PS_SETS_MAX = 16
"""Sets that are remembered: a task that is finished while one ps restarts is still credited to the others."""


@dataclass(slots=True, kw_only=True)
class RunningAttempt:
    """A delivery of a task that a worker is running.

    Attributes:
        dispatch: number of the dispatch that the delivery belongs to.
        attempt: number of the delivery within the dispatch.
        since_s: when the worker took it, by the worker's clock.
    """

    worker: PodName
    incarnation: Incarnation
    dispatch: int
    attempt: int
    reply: str
    since_s: float


@dataclass(slots=True, kw_only=True)
class Credit:
    """Tasks that a ps has absorbed as a whole, under one incarnation: those that every ps has, and some more.

    Attributes:
        incarnation: the ps' instance that reported them; empty while the ps is not running.
        beyond: task numbers that each of its groups has finished, beyond ``Training.complete``; few, whatever the
            number of tasks and ps.
    """

    incarnation: Incarnation = NOBODY
    beyond: RangeSet = field(default_factory=RangeSet)


@dataclass(slots=True)
class Training:
    """The training tasks of a plan against the credits of the ps.

    Attributes:
        frontier: tasks below this number were dispatched at least once.
        reached: tasks below this number are at least partly in a ledger that a ps restored. After the loss of a part of
            the log this can be more than ``frontier``.
        outstanding: dispatched and not complete: in the queue, or a worker is running them.
        lacking: dispatched before, not complete, and in no queue any more: to be dispatched again.
        complete: credited to every ps, or skipped.
        skipped: tasks that failed for good, and that a user has decided not to train.
        finished: finished by a worker at least once, whether or not every ps still has them.
        ps_sets: digest -> the present set of ps with their incarnations, and those that were present lately.
        speculated: tasks of which a second attempt was dispatched.
        waiting: synchronous training: worker that waited for others -> first task of its cohort at that time.
        waiting_since_s: when the first worker of the last of these cohorts said so, by the worker's clock.
    """

    plan: Plan
    frontier: int = 0
    reached: int = 0
    outstanding: set[int] = field(default_factory=set)
    lacking: set[int] = field(default_factory=set)
    complete: RangeSet = field(default_factory=RangeSet)
    finished: RangeSet = field(default_factory=RangeSet)
    skipped: RangeSet = field(default_factory=RangeSet)
    credits: dict[PodName, Credit] = field(default_factory=dict)
    ps_sets: dict[int, dict[PodName, Incarnation]] = field(default_factory=dict)
    speculated: set[int] = field(default_factory=set)
    waiting: dict[Incarnation, int] = field(default_factory=dict)
    waiting_since_s: float = 0.0
    statistics: TrainingStatistics = field(default_factory=TrainingStatistics)

    @property
    def epochs(self) -> dict[int, EpochTotals]:
        """Statistics per epoch, by its number from 0."""
        return self.statistics.epochs

    @property
    def is_complete(self) -> bool:
        """Whether every ps is credited with every task."""
        return len(self.complete) == self.plan.tasks

    @property
    def is_behind(self) -> bool:
        """Whether a ps lost tasks that were finished once, and has not absorbed all of them again."""
        return not self.complete.contains_all(self.finished)

    @property
    def begun(self) -> int:
        """Batches of tasks below this number may be in the model."""
        return max(self.frontier, self.reached)

    def is_dispatched(self, limit: int) -> bool:
        """Whether no task below ``limit`` waits for its first dispatch."""
        return not any(True for _ in self.complete.gaps(self.frontier, limit))

    @property
    def epochs_complete(self) -> int:
        """How many epochs, from the first, are complete without a gap."""
        first_missing = self.complete.first_missing(0)  # Evaluations have a plan without tasks.
        if first_missing >= self.plan.tasks:
            return self.plan.epoch(TaskId(self.plan.tasks - 1)) + 1 if self.plan.tasks else 0
        return first_missing // self.plan.tasks_per_epoch

    def has_epoch(self, epoch: int) -> bool:
        """Whether every task of an epoch is complete."""
        size = self.plan.tasks_per_epoch
        first, last = epoch * size, min((epoch + 1) * size, self.plan.tasks)
        return not any(True for _ in self.complete.gaps(first, last))

    def on_dispatched(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Apply a dispatch of these ranges ``[start, end)``.

        The same decision may have published a placement, with which every ps is credited with some of these tasks.
        """
        for start, end in ranges:
            self.lacking.difference_update(range(start, end))
            self.speculated.update(task for task in range(start, end) if task in self.outstanding)
            self.outstanding.update(
                task for first, last in self.complete.gaps(start, end) for task in range(first, last)
            )
            self.frontier = max(self.frontier, end)

    def on_ps_started(self, ps: PodName, incarnation: Incarnation, finished: RangeSet) -> None:
        """Apply the ledgers of a ps that has started: they replace its credit."""
        credited = self._credited()
        self.credits[ps] = Credit(incarnation=incarnation)
        self._remember_ps_set()
        self._recompute({**credited, ps: finished})

    def credited_to(self, ps: PodName) -> RangeSet:
        """The tasks that a ps is credited with."""
        return self.complete.union(self.credits[ps].beyond)

    def on_ps_exited(self, ps: PodName) -> None:
        """Apply the end of a ps: it gets no credit until it has reported its ledgers."""
        if ps in self.credits:
            self.credits[ps].incarnation = NOBODY

    def on_partitions_moved(
        self, donor: PodName, recipient: PodName, incarnation: Incarnation, held: RangeSet, *, is_last: bool
    ) -> None:
        """Apply that partitions have moved to another ps, whose ``incarnation`` is empty while it is not running."""
        credited = self._credited()
        credited[recipient] = credited[recipient].intersection(held) if recipient in credited else held
        self.credits.setdefault(recipient, Credit(incarnation=incarnation))
        if is_last:
            self.credits.pop(donor, None)
            credited.pop(donor, None)
        self._remember_ps_set()
        self._recompute(credited)

    def on_queue_purged(self) -> None:
        """Apply that the task queue is empty."""
        self.outstanding.clear()
        self.speculated.clear()
        self.waiting.clear()
        self._recompute(self._credited())

    def on_task_finished(self, event: TaskFinished, envelope: Envelope, placement_version: int) -> bool:
        """Credit a finished task to the ps that absorbed it, under their present incarnations only.

        Args:
            event: which ps answered, and under which version of the placement. An answer under an earlier version may
                have been for groups that have moved since, and gives no credit.

        Returns:
            Whether this completed the task for the first time.
        """
        task = event.task.number
        self.finished.add(task)
        was_complete = task in self.complete
        is_complete = was_complete or self._is_complete_with(event, placement_version)
        if is_complete:
            self.complete.add(task)
            self.outstanding.discard(task)
            self.lacking.discard(task)
            self.speculated.discard(task)
        elif task in self.outstanding:
            # Acknowledged under an older incarnation of a ps or an older placement: the queue has forgotten it.
            self.outstanding.discard(task)
            self.lacking.add(task)
        self.statistics.add(event, envelope, self.plan)
        return is_complete and not was_complete

    def on_task_returned(self, event: TaskReturned, envelope: Envelope) -> None:
        """Count what was computed of a task; one that is off the queue has to be dispatched again."""
        if event.is_dropped and event.task.number in self.outstanding:
            self.outstanding.discard(event.task.number)
            self.lacking.add(event.task.number)
        self.statistics.add(event, envelope, self.plan)

    def _is_complete_with(self, event: TaskFinished, placement_version: int) -> bool:
        """Credit a task that was not complete; returns whether every ps is credited with it now."""
        task = event.task.number
        # A set that is unknown by now gives no credit: the task is dispatched again, and found complete.
        known = self.ps_sets.get(event.absorbed_by) if event.placement_version == placement_version else None
        absorbed = (
            [credit for ps, credit in self.credits.items() if credit.incarnation == known.get(ps)] if known else []
        )
        if len(absorbed) < len(self.credits):
            for credit in absorbed:
                credit.beyond.add(task)
            if not all(task in credit.beyond for credit in self.credits.values()):
                return False
        for credit in self.credits.values():
            credit.beyond.discard(task)
        return bool(self.credits)

    def _remember_ps_set(self) -> None:
        present = {ps: credit.incarnation for ps, credit in self.credits.items() if credit.incarnation}
        digest = ps_set_digest(present)
        self.ps_sets.pop(digest, None)
        self.ps_sets[digest] = present
        while len(self.ps_sets) > PS_SETS_MAX:
            del self.ps_sets[next(iter(self.ps_sets))]

    def skip(self, tasks: RangeSet) -> None:
        """Count tasks as complete although the ps lack at least a part of them."""
        self.skipped = self.skipped.union(tasks)
        self._recompute(self._credited())

    def revoke(self, tasks: RangeSet) -> None:
        """Take the credit for tasks back that the audit found missing in a ledger."""
        self._recompute({ps: held.difference(tasks) for ps, held in self._credited().items()})

    def _credited(self) -> dict[PodName, RangeSet]:
        return {ps: self.credited_to(ps) for ps in self.credits}

    def _recompute(self, credited: Mapping[PodName, RangeSet]) -> None:
        absorbed = reduce(RangeSet.intersection, credited.values()) if credited else RangeSet()
        self.complete = absorbed.union(self.skipped)
        for ps, credit in self.credits.items():
            credit.beyond = credited[ps].difference(self.complete)
        self.outstanding = {task for task in self.outstanding if task not in self.complete}
        missing = (task for start, end in self.complete.gaps(0, self.frontier) for task in range(start, end))
        self.lacking = {task for task in missing if task not in self.outstanding}
