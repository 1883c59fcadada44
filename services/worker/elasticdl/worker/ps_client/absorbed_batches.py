"""Which ps have a batch already, so that it need not be sent to them again. Pure; the simulation uses it too."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.worker.ps_client.rules import BatchReply

TASKS_MAX = 16
"""A worker has fewer tasks in hand."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What the ps said about a task.

    Attributes:
        version: of the placement by which they all answered; by another one they may hold other groups.
        lives: who they were; another life may have less.
        next_batches: the first batch that each lacked.
    """

    version: int
    lives: Mapping[PodName, Incarnation]
    next_batches: Mapping[PodName, int]


class Standings:
    """What each ps has said last about where a task stands.

    A task that is begun again, because one ps came back from a snapshot, is pushed to that ps; the others are only
    asked where they stand. If one of them has less by now, its answer says so, and the worker goes back.
    """

    def __init__(self) -> None:
        self._tasks: OrderedDict[TaskId, _Said] = OrderedDict()

    def note(
        self,
        task: TaskId,
        replies: Mapping[PodName, BatchReply],
        lives: Mapping[PodName, Incarnation],
        version: int,
    ) -> None:
        """Keep what all ps answered about a task; arguments as ``rules.outcome_of``."""
        next_batches = {ps: reply.next_batch for ps, reply in replies.items()}
        self._tasks[task] = _Said(version, lives, next_batches)
        self._tasks.move_to_end(task)
        if len(self._tasks) > TASKS_MAX:
            self._tasks.popitem(last=False)

    def having(
        self, task: TaskId, batch: int, version: int, life_of: Callable[[PodName], Incarnation | None]
    ) -> frozenset[PodName]:
        """The ps that have a batch, as far as they said so by this version of the placement in their present lives."""
        said = self._tasks.get(task)
        if said is None or said.version != version:
            return frozenset()
        having = [ps for ps, next_batch in said.next_batches.items() if next_batch > batch]
        return frozenset(ps for ps in having if said.lives[ps] == life_of(ps))
