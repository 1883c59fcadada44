"""Synchronous training: what a worker does while the round of its next batch is not open.

It looks for another task of the cohort. If it has none after a while, another worker is slow, and the master is told.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import TaskId
from elasticdl.worker.core.batch_order import BatchRef

SLOWER = 3.0
"""A worker counts as slow when others wait for it this many times their own step time."""


class RoundWait:
    """Decides when a waiting worker takes a further task, and which tasks it returns once it continues.

    A round needs a batch of every task of a cohort. Usually other workers train the other tasks. If a worker died, or
    there are fewer workers than tasks in a cohort, a waiting worker has to train another task of the cohort itself. The
    queue may give it tasks of later cohorts first: it returns them when it continues, so that other workers get them.

    Args:
        patience_s: seconds after which waiting means that no other worker trains a task of the cohort.
        straggler_s: seconds after which waiting means that another worker is slow, at least.
    """

    def __init__(self, rounds: Rounds, *, patience_s: float, straggler_s: float) -> None:
        self._rounds = rounds
        self._patience_s = patience_s
        self._straggler_s = straggler_s
        self._waiting: BatchRef | None = None
        self._since_s = 0.0
        self._is_reported = False
        self._looked_back_s = -math.inf
        self._computed_s = 0.0
        self._computed = 0
        self._is_short = False
        """Whether a further task helped the last time: there are fewer workers than tasks in a cohort."""

    def on_incomplete(self, ref: BatchRef, now_s: float) -> None:
        """The round of a batch is not open."""
        if self._waiting is None:
            self._since_s = now_s
            self._waiting = ref

    def on_computed(self, seconds: float) -> None:
        """This worker has computed a batch in ``seconds``."""
        self._computed_s += seconds
        self._computed += 1

    def reports_delay(self, now_s: float) -> bool:
        """Whether to tell the master now that another worker is slow; True once per wait."""
        if self._waiting is None or self._is_reported:
            return False
        usual_s = self._computed_s / max(self._computed, 1)
        self._is_reported = now_s - self._since_s >= max(self._straggler_s, SLOWER * usual_s)
        return self._is_reported

    def on_task(self, task: TaskRef) -> None:
        """A further task arrived."""
        self._looked_back_s = -math.inf
        if self._waiting is not None:
            is_sibling = task.number in self._rounds.cohort(TaskId(self._waiting.task.number))
            self._is_short = is_sibling and self._waiting.batch > 0

    def looks_back(self, now_s: float) -> bool:
        """Whether to ask now if a ps was restored; True with the first delay of each task, and from time to time."""
        if now_s - self._looked_back_s < self._patience_s:
            return False
        self._looked_back_s = now_s
        return True

    def long_before(self, task: TaskRef) -> TaskId | None:
        """A task that only a ps that was restored can lack while this one is trained."""
        return self._rounds.long_before(TaskId(task.number))

    def wants_task(self, now_s: float) -> bool:
        """Whether to look for another task of the cohort."""
        return self._waiting is not None and now_s - self._since_s >= (0.0 if self._is_short else self._patience_s)

    def siblings(self, task: TaskRef, tasks: Sequence[TaskRef]) -> list[TaskRef]:
        """Those of these tasks that are trained together with this one."""
        cohort = self._rounds.cohort(TaskId(task.number))
        return [other for other in tasks if other.number in cohort and other != task]

    def end(self) -> None:
        """The worker waits no longer: it continues, or has dropped its tasks."""
        self._waiting, self._is_reported = None, False

    def side_by_side(self, tasks: Sequence[TaskRef]) -> int:
        """How many of these tasks are trained together with the first one, itself included; at least 1."""
        if not tasks:
            return 1
        first = min(tasks, key=lambda task: task.number)
        return 1 + len(self.siblings(first, tasks))

    def on_pushed(
        self, ref: BatchRef, tasks: Sequence[TaskRef], *, begun: Collection[TaskRef], read: Collection[TaskRef]
    ) -> list[TaskRef]:
        """The worker continues.

        Args:
            begun: those of which a batch was computed.
            read: those of which a batch was read.

        Returns:
            Tasks for other workers: those of this cohort that the worker has not begun and need not train itself, and
            those of later cohorts that it has not read.
        """
        self.end()
        present = self._rounds.cohort(TaskId(ref.task.number))
        unbegun = [task for task in tasks if task not in begun and task != ref.task]
        siblings = [task for task in unbegun if task.number in present]
        later = [task for task in unbegun if task.number >= present.stop and task not in read]
        return ([] if self._is_short else siblings) + later
