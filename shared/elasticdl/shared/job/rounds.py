"""Synchronous training: which batches make one optimizer update. A pure function of the plan and a ledger.

Tasks are trained in cohorts of ``tasks_per_cohort`` consecutive tasks of an epoch. Batch ``j`` of every task of a
cohort makes round ``j``: one update by the mean of their gradients, weighted by records. A task that is shorter than
the others has no batch in the last rounds.

====================  =====================================================
tasks                 rounds
====================  =====================================================
0: a0 a1 a2           (a0 b0)  (a1 b1)  (a2)
1: b0 b1
====================  =====================================================

A round is open once every earlier round is complete. Only the plan decides which batches are in a round, so every ps
makes the same updates without asking another one, and the model does not depend on how many workers there are, which of
them are preempted, or which of them computes what.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.names import TaskId

COHORTS_AHEAD = 3
"""Cohorts that the master keeps dispatched. What is dispatched again must not queue behind many tasks."""
_NO_END = 1 << 62
"""More tasks than any plan has. A resume can add epochs that a worker's plan lacks."""
RoundKey = tuple[int, int, int]
"""First task of the cohort, batch, task: rounds and their batches in the order of their updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The rounds of a plan."""

    plan: Plan
    tasks_per_cohort: int

    def cohort(self, task: TaskId) -> range:
        """The tasks that are trained together with this one, itself included; cohorts do not cross epochs."""
        first = self.plan.epoch(task) * self.plan.tasks_per_epoch
        start = task - (task - first) % self.tasks_per_cohort
        end = min(start + self.tasks_per_cohort, first + self.plan.tasks_per_epoch)
        return range(start, min(end, self.plan.tasks) if self.plan.is_truncated else end)

    @property
    def window(self) -> int:
        """How many tasks the master keeps dispatched."""
        return COHORTS_AHEAD * self.tasks_per_cohort

    def long_before(self, task: TaskId) -> TaskId | None:
        """A task that must be complete when the master dispatches this one; None if there is none.

        All incomplete tasks before a dispatched one fit into the window. Between them only tasks of the first
        incomplete cohort can be complete, because later cohorts wait for it. So a ledger that lacks this task was
        restored since.
        """
        number = task - self.window - self.tasks_per_cohort
        return TaskId(number) if number >= 0 else None

    def members(self, task: TaskId, batch: int) -> tuple[TaskId, ...]:
        """The tasks that have a batch in the round of this one, itself included."""
        return tuple(TaskId(one) for one in self.cohort(task) if batch < self.plan.batches_of(TaskId(one)))

    def key(self, task: TaskId, batch: int) -> RoundKey:
        """Sorts batches by round."""
        return self.cohort(task).start, batch, task

    def is_open(self, ledger: Ledger, task: TaskId, batch: int) -> bool:
        """Whether every round before that of a batch is complete."""
        earlier = next(ledger.missing(self.cohort(task).start), None)
        return earlier is None and self._has_batches(ledger, task, batch)

    def is_complete(self, ledger: Ledger, task: TaskId, batch: int) -> bool:
        """Whether every batch of the round that a batch belongs to is absorbed."""
        return self._has_batches(ledger, task, batch + 1)

    def is_between(self, ledger: Ledger) -> bool:
        """Whether no batch of the first incomplete round is absorbed, if rounds were completed in their order."""
        cohort = self.cohort(TaskId(next(ledger.missing(_NO_END))[0]))
        if not cohort:
            return True
        complete = self._complete_rounds(ledger, cohort)
        return all(ledger.next_batch(TaskId(task), self.plan.batches_of(TaskId(task))) <= complete for task in cohort)

    def count(self, ledger: Ledger) -> int:
        """How many rounds are complete, if they were completed in their order. Takes time for each finished cohort."""
        first = next(ledger.missing(_NO_END))[0]
        rounds = start = 0
        while start <= first:
            cohort = self.cohort(TaskId(start))
            if not cohort:
                break
            rounds += self._complete_rounds(ledger, cohort)
            start = cohort.stop
        return rounds

    def _complete_rounds(self, ledger: Ledger, cohort: range) -> int:
        batches = [self.plan.batches_of(TaskId(task)) for task in cohort]
        absorbed = [ledger.next_batch(TaskId(task), each) for task, each in zip(cohort, batches, strict=True)]
        return min(
            (done for done, all_of in zip(absorbed, batches, strict=True) if done < all_of), default=max(batches)
        )

    def _has_batches(self, ledger: Ledger, task: TaskId, count: int) -> bool:
        """Whether the first ``count`` batches of each task of a cohort are absorbed."""
        for member in self.cohort(task):
            batches = self.plan.batches_of(TaskId(member))
            if ledger.next_batch(TaskId(member), batches) < min(count, batches):
                return False
        return True
