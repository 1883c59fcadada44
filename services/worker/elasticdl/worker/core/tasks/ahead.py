"""How many short tasks a worker takes at once."""

from __future__ import annotations

BATCHES_MAX = 16
"""Batches of the tasks that are taken at once."""
SECONDS_MAX = 0.25
"""Seconds for which they keep the worker busy: at the end of an epoch, others wait for them."""
_WEIGHT = 0.2
"""Weight of the last batch in the moving average of the seconds per batch."""


class TasksAhead:
    """Takes as many tasks as the worker trains in a moment, so that short ones cost one request together."""

    def __init__(self, batches_per_task: int) -> None:
        self._tasks_max = max(1, BATCHES_MAX // batches_per_task)
        self._batches_per_task = batches_per_task
        self._last_s: float | None = None
        self._batch_s: float | None = None

    def on_batch(self, now_s: float) -> None:
        """A batch was trained."""
        if self._last_s is not None:
            elapsed_s = now_s - self._last_s
            average_s = elapsed_s if self._batch_s is None else self._batch_s
            self._batch_s = average_s + _WEIGHT * (elapsed_s - average_s)
        self._last_s = now_s

    @property
    def batches_are_short(self) -> bool:
        """Whether a batch takes so little time that several are read in a row."""
        return self._batch_s is not None and self._batch_s * BATCHES_MAX <= SECONDS_MAX

    @property
    def count(self) -> int:
        """Tasks to take now: one until it is known how long a batch takes."""
        if self._batch_s is None:
            return 1
        task_s = self._batch_s * self._batches_per_task
        return self._tasks_max if task_s * self._tasks_max <= SECONDS_MAX else max(1, int(SECONDS_MAX / task_s))
