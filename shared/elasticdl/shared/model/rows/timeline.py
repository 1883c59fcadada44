"""When the partitions of a ps were updated, and at which learning rates: what rows need to catch up on updates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.shared.model.manifests import RateRun
from elasticdl.shared.model.partitioning import partitions_of
from elasticdl.shared.model.placement import PARTITIONS

_TOLERANCE = 0.002
"""A rate that differs by less from the one before is not worth a run of its own."""
_RUNS_MAX = 8192


@dataclass(frozen=True, slots=True)
class RateArrays:
    """The runs as the kernels read them; never changed, so another thread may read on while updates are made.

    Attributes:
        starts: int64[runs], ascending, the first is 0.
        rates: float64[2, runs]: the rate of a run, and the sum of the rates of all updates before it.
    """

    starts: NDArray[np.int64]
    rates: NDArray[np.float64]

    @classmethod
    def of(cls, runs: Sequence[RateRun]) -> RateArrays:
        """Of at least one run."""
        starts = np.array([run.start for run in runs], np.int64)
        rates = np.zeros((2, len(runs)), np.float64)
        rates[0] = [run.rate for run in runs]
        np.cumsum(rates[0, :-1] * np.diff(starts), out=rates[1, 1:])
        return cls(starts, rates)

    def sum_until(self, updates: NDArray[np.int32]) -> NDArray[np.float64]:
        """Sum of the rates of the given numbers of updates, int32[n] -> float64[n]."""
        runs = np.searchsorted(self.starts, updates, side="right") - 1
        sums: NDArray[np.float64] = self.rates[1, runs] + (updates - self.starts[runs]) * self.rates[0, runs]
        return sums


class RateHistory:
    """The learning rate of each update, in runs of rates that are equal to 0.2 %.

    A history never gets longer than 8,192 runs: before it does, runs that are similar become one.
    """

    def __init__(self) -> None:
        self._runs: list[RateRun] = []
        self._updates = 0
        self.tolerance = _TOLERANCE
        """Relative difference up to which rates are one run; each thinning doubles it."""
        self.arrays = RateArrays.of([RateRun(0, 0.0)])

    @property
    def runs(self) -> tuple[RateRun, ...]:
        """The runs; none before the first update."""
        return tuple(self._runs)

    def record(self, update: int, rate: float) -> None:
        """The rate of an update, the number of those before it; one that is made again changes nothing."""
        if update < self._updates:
            return
        self._updates = update + 1
        if self._runs and self._is_near(rate, self._runs[-1].rate):
            return
        # Without a history, the rate has always been the first one.
        self._runs.append(RateRun(update if self._runs else 0, rate))
        while len(self._runs) > _RUNS_MAX:
            self.tolerance *= 2
            self._runs = self._thinned()
        self.arrays = RateArrays.of(self._runs)

    def load(self, runs: Iterable[RateRun], updates: int, tolerance: float = 0.0) -> None:
        """Take over a history of updates unless the present one is longer: groups differ in nothing else."""
        runs = list(runs)
        if runs and (updates > self._updates or not self._runs):
            self._runs, self._updates = runs, updates
            self.tolerance = max(tolerance, _TOLERANCE)
            self.arrays = RateArrays.of(runs)

    def _is_near(self, rate: float, other: float) -> bool:
        return abs(rate - other) <= self.tolerance * abs(other)

    def _thinned(self) -> list[RateRun]:
        kept = self._runs[:1]
        for run in self._runs[1:]:
            if not self._is_near(run.rate, kept[-1].rate):
                kept.append(run)
        return kept


class Timeline:
    """The updates that the groups of a ps have made. The model shard that owns the stores changes it.

    Attributes:
        updates: int32[256], by partition: updates that its group has made; 0 where no group is served, so that no row
            expires or catches up there.
        rates: their learning rates. All groups of a ps have one history: they make the same updates.
    """

    def __init__(self) -> None:
        self.updates = np.zeros(PARTITIONS, np.int32)
        self.rates = RateHistory()

    def updates_of(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """int32[n]: updates that the groups of some ids have made."""
        return updates_of(self.updates, ids)

    def served_updates_of(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """As ``updates_of``, of ids whose partitions are served here; faster."""
        served = self.updates[self.updates > 0]
        if served.size and (served == served[0]).all():  # Most ps serve one group, and a partition costs a hash.
            return np.full(ids.size, served[0], np.int32)
        return self.updates_of(ids)


def updates_of(updates: NDArray[np.int32], ids: NDArray[np.int64]) -> NDArray[np.int32]:
    """int32[n]: those of the partitions of ``ids``, from those of all partitions."""
    return updates[partitions_of(ids)]
