"""Which ps have a batch already, so that it need not be sent to them again. Pure; the simulation uses it too."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from elasticdl.shared.names import PodName, TaskId

TASKS_MAX = 16
"""A worker has fewer tasks in hand."""


class Standings:
    """What each ps has said last about where a task stands.

    A task that is begun again, because one ps came back from a snapshot, is pushed to that ps; the others are only
    asked where they stand. If one of them has less by now, its answer says so, and the worker goes back.
    """

    def __init__(self) -> None:
        self._tasks: OrderedDict[TaskId, tuple[int, Mapping[PodName, int]]] = OrderedDict()

    def note(self, task: TaskId, version: int, next_batches: Mapping[PodName, int]) -> None:
        """Keep the answers of all ps by one version of the placement: the first batch that each lacks of a task."""
        self._tasks[task] = version, next_batches
        self._tasks.move_to_end(task)
        if len(self._tasks) > TASKS_MAX:
            self._tasks.popitem(last=False)

    def having(self, task: TaskId, batch: int, version: int) -> frozenset[PodName]:
        """The ps that have a batch, as far as they said so by this version of the placement."""
        noted, next_batches = self._tasks.get(task, (version, {}))
        return frozenset(ps for ps, next_batch in next_batches.items() if noted == version and next_batch > batch)
