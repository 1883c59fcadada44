"""Bounded staleness: which pulls are admitted. See ADR 10 for the rule and what it guarantees."""

from __future__ import annotations

from dataclasses import dataclass

CONTESTED_S = 1.0
"""If another worker has begun its task, a batch can be overdue this many seconds after its pull."""
ACTIVE_S = 1.0
"""A worker whose pull was delayed asks again within about 0.1 s. After this many seconds it no longer counts."""
_MEAN_BATCHES = 20
"""Number of recent batches in the average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """How staleness is bounded.

    Attributes:
        max_staleness: the bound, in updates; None: one less than the workers that train at the moment.
        overdue_s: seconds after its pull before which a batch is never overdue.
        overdue_factor: a batch becomes overdue only after this multiple of the average batch time.
    """

    max_staleness: int | None
    grads_to_wait: int = 1
    overdue_s: float = 30.0
    overdue_factor: float = 10.0

    @classmethod
    def by_workers(cls, grads_to_wait: int = 1) -> GateSettings:
        """One less than the workers that train: the default, by which slow workers delay others less."""
        return cls(max_staleness=None, grads_to_wait=grads_to_wait, overdue_s=3.0, overdue_factor=3.0)


BatchKey = tuple[int, int]
"""Task and batch."""


@dataclass(slots=True, kw_only=True)
class Outstanding:
    """A batch that was pulled and not pushed yet.

    Attributes:
        pushes: pushes since its first pull, plus those that already waited for their update then.
        since_s: when it was pulled last, monotonic seconds.
        sender: number of the connection that it was pulled by last.
        is_contested: another worker has begun its task since.
        is_overdue: its worker is slow or dead, so the gate ignores it.
    """

    pushes: int
    since_s: float
    sender: int
    is_contested: bool = False
    is_overdue: bool = False


class StalenessGate:
    """The outstanding batches of a job. Not thread-safe: the core's lock guards it."""

    def __init__(self, settings: GateSettings) -> None:
        self.bound = settings.max_staleness or 0
        """The bound that the last pull was admitted by."""
        self._settings = settings
        self._outstanding: dict[BatchKey, Outstanding] = {}
        self._delayed: dict[int, float] = {}
        """Sender -> when its pull was delayed last."""
        self._mean_s = 0.0
        self._measured = 0

    @property
    def bounded(self) -> frozenset[BatchKey]:
        """The outstanding batches whose staleness is bounded."""
        return frozenset(key for key, batch in self._outstanding.items() if not batch.is_overdue)

    def admits(self, key: BatchKey, *, accumulated: int, now_s: float, sender: int) -> bool:
        """Whether a batch may be pulled: no outstanding batch, itself included, can become too stale by it.

        A worker has one outstanding batch. When it asks for another one, it will not push the former.

        Args:
            now_s: monotonic seconds.
        """
        self._forget_former(key, sender)
        pushes, computing = accumulated, {sender}
        others = 0
        for other, batch in self._outstanding.items():
            if other != key:
                batch.is_overdue = batch.is_overdue or self._is_overdue(batch, now_s)
                if not batch.is_overdue:
                    pushes, others = max(pushes, batch.pushes), others + 1
            if not batch.is_overdue:
                computing.add(batch.sender)
        bound = self._bound(computing, now_s)
        if (pushes + others) // self._settings.grads_to_wait > bound:
            self._delayed[sender] = now_s
            return False
        self.bound = bound
        return True

    def updates_ahead(self, key: BatchKey, *, accumulated: int) -> int:
        """Updates that the other outstanding batches will make if each is pushed before this one."""
        others = sum(other != key and not batch.is_overdue for other, batch in self._outstanding.items())
        return (accumulated + others) // self._settings.grads_to_wait

    def on_pulled(self, key: BatchKey, *, accumulated: int, now_s: float, sender: int) -> None:
        """An admitted batch was pulled. Two attempts share an entry: either of them may be absorbed."""
        former = self._outstanding.get(key)
        if former is not None and not former.is_overdue:
            accumulated = max(accumulated, former.pushes)
        self._outstanding[key] = Outstanding(pushes=accumulated, since_s=now_s, sender=sender)
        self._delayed.pop(sender, None)

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

    def on_disconnected(self, sender: int) -> None:
        """A connection has ended. Its worker can connect again and push all the same, but is probably dead."""
        for batch in self._outstanding.values():
            batch.is_overdue = batch.is_overdue or batch.sender == sender

    def on_task_finished(self, task: int) -> None:
        """Every batch of a task is absorbed."""
        for key in [key for key in self._outstanding if key[0] == task]:
            del self._outstanding[key]

    def _forget_former(self, key: BatchKey, sender: int) -> None:
        """Forget other batches of a worker that asks for this one."""
        for other in [one for one, batch in self._outstanding.items() if batch.sender == sender and one != key]:
            del self._outstanding[other]

    def _bound(self, computing: set[int], now_s: float) -> int:
        """The bound for a pull. The workers that train are those that compute a batch or wait for a pull."""
        if self._settings.max_staleness is not None:
            return self._settings.max_staleness
        if self._delayed:
            self._delayed = {other: at_s for other, at_s in self._delayed.items() if now_s - at_s <= ACTIVE_S}
        return len(computing | self._delayed.keys()) - 1

    def _is_overdue(self, batch: Outstanding, now_s: float) -> bool:
        overdue_s = self._settings.overdue_s
        least_s = min(CONTESTED_S, overdue_s) if batch.is_contested else overdue_s
        return now_s - batch.since_s > max(least_s, self._settings.overdue_factor * self._mean_s)
