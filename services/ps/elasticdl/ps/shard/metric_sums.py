"""The training metrics of the epochs: sums over exactly the batches that the model has absorbed (ADR 14).

A push carries the metric states of its batch, which are additive. The group with partition 0 adds them up when its
ledger absorbs the batch, so a sum is as exact as the weights: it is in the group's snapshots, and moves with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.shard.admission import RefusedError
from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.wire.messages import NO_DOUBLES, Doubles, RefusalKind

MetricTable = NDArray[np.float64]
"""float64[epochs, 4 + states]: epoch, batches, records, number of states, summed states; zeros fill shorter rows.

Whole numbers are exact up to 2**53."""
_FACTS = 4
NO_METRICS: MetricTable = np.zeros((0, _FACTS), np.float64)


def has_metrics(partitions: Ranges) -> bool:
    """Whether the group with these partitions adds up the metric states: exactly one of a model has partition 0."""
    return bool(partitions) and partitions[0][0] == 0


@dataclass(slots=True)
class EpochSum:
    """The sum over the batches of one epoch; ``states`` is empty until a batch has some."""

    batches: int = 0
    records: int = 0
    states: Doubles = field(default_factory=lambda: NO_DOUBLES)


class EpochMetricSums:
    """Sums by epoch. Not thread-safe: the core's lock guards it."""

    def __init__(self, tasks_per_epoch: int) -> None:
        self._tasks_per_epoch = tasks_per_epoch
        self._sums: dict[int, EpochSum] = {}
        self._first = 0
        """Sums of earlier epochs were dropped."""

    def check(self, task: int, states: Doubles) -> None:
        """Refuse states that can't be added to those of their epoch."""
        known = self._sums.get(task // self._tasks_per_epoch)
        if known is not None and states.size != known.states.size and states.size and known.states.size:
            raise RefusedError(
                RefusalKind.USER,
                f"the metrics of this batch have {states.size} state values, those of earlier batches of the epoch "
                f"{known.states.size}: resume with the model file and the library versions with which the epoch began",
            )

    def add(self, task: int, records: int, states: Doubles) -> None:
        """Add a batch. One of an epoch that was dropped has been read with it, and is absorbed again.

        Args:
            states: float64, checked; not kept. Empty: the batch has none.
        """
        epoch = task // self._tasks_per_epoch
        if epoch < self._first:
            return
        total = self._sums.get(epoch)
        if total is None:
            total = self._sums[epoch] = EpochSum()
        total.batches += 1
        total.records += records
        if total.states.size:
            if states.size:
                total.states += states
        else:
            total.states = states.copy()

    def of(self, epoch: int) -> EpochSum:
        """The sum of an epoch."""
        return self._sums.get(epoch) or EpochSum()

    def drop_before(self, epoch: int) -> None:
        """Drop the sums of earlier epochs."""
        self._first = max(self._first, epoch)
        for earlier in [one for one in self._sums if one < epoch]:
            del self._sums[earlier]

    def table(self) -> MetricTable:
        """A copy, for a cut."""
        size = max((one.states.size for one in self._sums.values()), default=0)
        table = np.zeros((len(self._sums), _FACTS + size), np.float64)
        for row, (epoch, one) in zip(table, sorted(self._sums.items()), strict=True):
            row[:_FACTS] = epoch, one.batches, one.records, one.states.size
            row[_FACTS : _FACTS + one.states.size] = one.states
        return table

    def load(self, table: MetricTable) -> None:
        """Take over what ``table`` gave."""
        self._sums = {}
        for row in table:
            epoch, batches, records, size = (int(number) for number in row[:_FACTS])
            states = row[_FACTS : _FACTS + size].copy()
            self._sums[epoch] = EpochSum(batches=batches, records=records, states=states)


def is_epoch_complete(ledger: Ledger, plan: Plan, epoch: int, skipped: Sequence[int]) -> bool:
    """Whether every task of an epoch is absorbed but for the skipped ones.

    A resume may have added epochs that this ps' plan does not have.
    """
    first = epoch * plan.tasks_per_epoch
    end = first + plan.tasks_per_epoch
    wanted = RangeSet((task, task + 1) for task in skipped).gaps(
        first, min(end, plan.tasks) if plan.is_truncated else end
    )
    return all(ledger.has_all(*each) for each in wanted)
