"""How stale the absorbed gradients were, and how much time exchanging weights and gradients took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticdl.shared.messages.times import Times

EXACT_MAX = 1024
"""Batches are counted by exact staleness up to here, the largest bound, and beyond by powers of two."""


@dataclass(slots=True, kw_only=True)
class StalenessTotals:
    """Sums over absorbed batches. The staleness of a batch is defined in docs/adr/0010-asynchronous-training.md.

    Attributes:
        batches: upper bound of the staleness in updates -> how many batches.
        updates: sum of the staleness of all of them.
        exchange_s: see ``Times``.
    """

    batches: dict[int, int] = field(default_factory=dict)
    updates: int = 0
    largest: int = 0
    exchange_s: float = 0.0
    total_s: float = 0.0

    @property
    def count(self) -> int:
        """How many batches."""
        return sum(self.batches.values())

    @property
    def mean(self) -> float:
        """Mean staleness in updates; 0 without batches."""
        return self.updates / self.count if self.batches else 0.0

    def quantile(self, share: float) -> int:
        """The least staleness that this share of the batches does not exceed; 0 without batches."""
        needed = share * self.count
        for staleness, batches in sorted(self.batches.items()):
            needed -= batches
            if needed <= 0:
                return min(staleness, self.largest)
        return self.largest

    def count_above(self, bound: int) -> int:
        """How many batches were later than a bound up to ``EXACT_MAX``."""
        return sum(batches for staleness, batches in self.batches.items() if staleness > bound)

    def add(self, staleness: Mapping[int, int]) -> None:
        """Add batches by their exact staleness."""
        for updates, batches in staleness.items():
            limit = updates if updates <= EXACT_MAX else 1 << (updates - 1).bit_length()
            self.batches[limit] = self.batches.get(limit, 0) + batches
            self.updates += updates * batches
            if updates > self.largest:
                self.largest = updates

    def add_times(self, times: Times) -> None:
        """Add a worker's time on a task."""
        self.exchange_s += times.exchange_s
        self.total_s += times.total_s

    @classmethod
    def of_all(cls, many: Iterable[StalenessTotals]) -> StalenessTotals:
        """The sums over all workers."""
        total = cls()
        for one in many:
            total._count(one.batches, one.updates, one.largest)
            total.exchange_s += one.exchange_s
            total.total_s += one.total_s
        return total

    def _count(self, batches: Mapping[int, int], updates: int, largest: int) -> None:
        for limit, number in batches.items():
            self.batches[limit] = self.batches.get(limit, 0) + number
        self.updates += updates
        self.largest = max(self.largest, largest)
