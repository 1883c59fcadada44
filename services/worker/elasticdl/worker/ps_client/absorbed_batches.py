"""Remembers which ps have a batch already, so that it is not sent to them again. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.worker.ps_client.rules import BatchReply

TASKS_MAX = 16
"""A worker leases fewer tasks at a time."""


@dataclass(frozen=True, slots=True)
class _LastAnswers:
    """The last answers of all ps about a task.

    Attributes:
        version: version of the placement by which they answered; by another one they may hold other groups.
        incarnations: who answered; a restarted ps may have absorbed less.
        next_batches: the next batch that each ps expects.
    """

    version: int
    incarnations: Mapping[PodName, Incarnation]
    next_batches: Mapping[PodName, int]


class AbsorbedBatches:
    """What each ps last answered about the progress of a task.

    When one ps is restored from a snapshot, the task is repeated for that ps; the others are only asked for their
    progress. If one of them has absorbed less by now, its answer says so, and the worker repeats more.
    """

    def __init__(self) -> None:
        self._tasks: OrderedDict[TaskId, _LastAnswers] = OrderedDict()

    def record(
        self,
        task: TaskId,
        replies: Mapping[PodName, BatchReply],
        incarnations: Mapping[PodName, Incarnation],
        version: int,
    ) -> None:
        """Remember what all ps answered about a task; arguments as ``rules.outcome_of``."""
        next_batches = {ps: reply.next_batch for ps, reply in replies.items()}
        self._tasks[task] = _LastAnswers(version, incarnations, next_batches)
        self._tasks.move_to_end(task)
        if len(self._tasks) > TASKS_MAX:
            self._tasks.popitem(last=False)

    def having(
        self, task: TaskId, batch: int, version: int, incarnation_of: Callable[[PodName], Incarnation | None]
    ) -> frozenset[PodName]:
        """The ps whose running incarnation has answered, by this version of the placement, that it has a batch."""
        said = self._tasks.get(task)
        if said is None or said.version != version:
            return frozenset()
        having = [ps for ps, next_batch in said.next_batches.items() if next_batch > batch]
        return frozenset(ps for ps in having if said.incarnations[ps] == incarnation_of(ps))
