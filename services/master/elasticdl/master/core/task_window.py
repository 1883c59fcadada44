"""The dispatch window of an evaluation or a prediction job: few tasks at a time, until all have results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.job.spec import Limits

WINDOW_TASKS_MAX = 16_384
_WORKERS_OF_LEAST_WINDOW = 8

TaskRanges = tuple[tuple[int, int], ...]
"""Ranges ``[start, end)`` of tasks."""


@dataclass(slots=True, kw_only=True)
class TaskWindow:
    """Which tasks were dispatched, and which of these have results. Tasks count from 0.

    Attributes:
        frontier: tasks below this number were dispatched, or had a result before.
        outstanding: dispatched and without a result: in the queue, or a worker is running them.
        begun_s: when the first one was dispatched.
        begun_with: tasks that had a result at that time.
    """

    frontier: int = 0
    outstanding: RangeSet = field(default_factory=RangeSet)
    finished: RangeSet = field(default_factory=RangeSet)
    begun_s: float = 0.0
    begun_with: int = 0

    def on_dispatched(self, ranges: TaskRanges, now_s: float) -> None:
        """Apply a dispatch of these ranges."""
        if not self.frontier:
            self.begun_s, self.begun_with = now_s, len(self.finished)
        for start, end in ranges:
            self.outstanding.add_range(start, end)
            self.frontier = max(self.frontier, end)

    def on_result(self, task: int) -> None:
        """A task has a result."""
        self.outstanding.discard(task)
        self.finished.add(task)

    def on_queue_purged(self) -> None:
        """The queue is empty: the tasks without a result have to be dispatched again."""
        self.outstanding = RangeSet()
        self.frontier = 0

    def size(self, limits: Limits, workers: int, now_s: float) -> int:
        """How many tasks to keep dispatched: ``window_s`` seconds of work, so that workers continue without a master.

        Args:
            now_s: seconds since 1970.
        """
        least = limits.evaluation_window_min * max(_WORKERS_OF_LEAST_WINDOW, workers) // _WORKERS_OF_LEAST_WINDOW
        tasks_per_s = (len(self.finished) - self.begun_with) / max(now_s - self.begun_s, 1.0)
        return max(least, min(int(tasks_per_s * limits.window_s), WINDOW_TASKS_MAX))

    def next_tasks(self, tasks: int, size: int) -> TaskRanges:
        """The tasks to dispatch now, in their order.

        None is ``WINDOW_TASKS_MAX`` ahead of the first one without a result, however long that one takes: the results
        of later tasks wait for it.
        """
        limit = min(tasks, self.finished.first_missing(0) + WINDOW_TASKS_MAX)
        return fill(self.finished.gaps(self.frontier, limit), size - len(self.outstanding), size)


def fill(missing: Iterable[tuple[int, int]], room: int, size: int) -> TaskRanges:
    """The first ``room`` tasks of these ranges; none until a quarter of the window is free, so that dispatches are few.

    Args:
        missing: ranges of tasks, in ascending order.
    """
    ranges: list[tuple[int, int]] = []
    if room * 4 >= size:
        for start, end in missing:
            ranges.append((start, min(end, start + room)))
            room -= end - start
            if room <= 0:
                break
    return tuple(ranges)
