"""Bounded staleness: which pulls are admitted. See docs/adr/0023-staleness.md for the rule and what it guarantees."""

from __future__ import annotations

from dataclasses import dataclass

OVERDUE_S = 30.0
"""Seconds after its pull before which a batch is never overdue."""
CONTESTED_S = 1.0
"""The same for a batch whose task another worker has taken over."""
OVERDUE_FACTOR = 10.0
"""A batch is not overdue before it took so many times as long as batches take on average."""
_MEAN_BATCHES = 20
"""The average is that of about so many recent batches."""

BatchKey = tuple[int, int]
"""Task and batch."""


@dataclass(slots=True, kw_only=True)
class Outstanding:
    """A batch that was pulled and not pushed yet.

    Attributes:
        pushes: pushes since its first pull, and those that waited for their update by then.
        since_s: when it was pulled last, monotonic seconds.
        is_contested: another worker has begun its task since.
        is_overdue: it is ignored; its worker is slow or dead.
    """

    pushes: int
    since_s: float
    is_contested: bool = False
    is_overdue: bool = False


class StalenessGate:
    """The outstanding batches of a job. Not thread-safe: the core's lock guards it.

    Args:
        max_staleness: the bound, in updates.
        grads_to_wait: batches whose gradients make one update.
        overdue_s: see ``OVERDUE_S``.
    """

    def __init__(self, max_staleness: int, *, grads_to_wait: int = 1, overdue_s: float = OVERDUE_S) -> None:
        self._max_staleness = max_staleness
        self._grads_to_wait = grads_to_wait
        self._overdue_s = overdue_s
        self._outstanding: dict[BatchKey, Outstanding] = {}
        self._mean_s = 0.0
        self._measured = 0

    @property
    def bounded(self) -> frozenset[BatchKey]:
        """The outstanding batches whose staleness is bounded."""
        return frozenset(key for key, batch in self._outstanding.items() if not batch.is_overdue)

    def admits(self, key: BatchKey, *, accumulated: int, now_s: float) -> bool:
        """Whether a batch may be pulled: no outstanding batch, itself included, can become too stale by it.

        Args:
            key: the batch.
            accumulated: batches that wait for their update.
            now_s: monotonic seconds.
        """
        others = [batch for other, batch in self._outstanding.items() if other != key]
        for batch in others:
            batch.is_overdue = batch.is_overdue or self._is_overdue(batch, now_s)
        others = [batch for batch in others if not batch.is_overdue]
        most = max([batch.pushes for batch in others], default=0)
        return (max(most, accumulated) + len(others)) // self._grads_to_wait <= self._max_staleness

    def on_pulled(self, key: BatchKey, *, accumulated: int, now_s: float) -> None:
        """An admitted batch was pulled. Two attempts share an entry: either of them may be absorbed."""
        former = self._outstanding.get(key)
        if former is not None and not former.is_overdue:
            accumulated = max(accumulated, former.pushes)
        self._outstanding[key] = Outstanding(pushes=accumulated, since_s=now_s)

    def on_pushed(self, key: BatchKey, *, is_empty: bool, now_s: float) -> None:
        """A batch was pushed, whatever became of it: another ps may have absorbed it."""
        found = self._outstanding.pop(key, None)
        if found is not None:
            self._measured = min(self._measured + 1, _MEAN_BATCHES)
            self._mean_s += (now_s - found.since_s - self._mean_s) / self._measured
        if not is_empty:
            for batch in self._outstanding.values():
                batch.pushes += 1

    def on_task_begun(self, task: int) -> None:
        """A worker begins, or continues, a task: another one that had pulled for it is probably dead."""
        for (other, _), batch in self._outstanding.items():
            if other == task:
                batch.is_contested = True

    def on_task_finished(self, task: int) -> None:
        """Every batch of a task is absorbed."""
        for key in [key for key in self._outstanding if key[0] == task]:
            del self._outstanding[key]

    def _is_overdue(self, batch: Outstanding, now_s: float) -> bool:
        least_s = min(CONTESTED_S, self._overdue_s) if batch.is_contested else self._overdue_s
        return now_s - batch.since_s > max(least_s, OVERDUE_FACTOR * self._mean_s)
