"""Large metric states, which workers store beside the log: the core knows their numbers and never their content."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elasticdl.shared.job.rangeset import RangeSet

_PARTS_FACTOR = 4
"""Large sums have several parts: at least so many times as many are summed."""


@dataclass(slots=True, kw_only=True)
class EpochStates:
    """Numbers of the stored states of an epoch's training, until its metrics are computed.

    Attributes:
        complete: of tasks of which every batch is known, and sums of such states.
        partial: of tasks of which some batches are unknown: other states of the task may replace them.
        summing: a worker replaces them by their sum.
        parts: the most parts that one report has had.
    """

    complete: RangeSet = field(default_factory=RangeSet)
    partial: RangeSet = field(default_factory=RangeSet)
    summing: RangeSet = field(default_factory=RangeSet)
    parts: int = 0

    def __bool__(self) -> bool:
        return bool(self.complete or self.partial or self.summing)

    def is_sum_due(self, stored_max: int) -> bool:
        """Whether there are so many complete ones that a worker should replace them by their sum."""
        return not self.summing and len(self.complete) >= max(stored_max, _PARTS_FACTOR * self.parts)

    @property
    def numbers(self) -> tuple[int, ...]:
        """All numbers, once no worker sums any."""
        return tuple(sorted({*self.complete, *self.partial}))

    def add(self, numbers: Iterable[int], *, is_partial: bool) -> None:
        """Add the states of one report."""
        added = tuple(numbers)
        self.parts = max(self.parts, len(added))
        add_all(self.partial if is_partial else self.complete, added)

    def complete_partial(self, numbers: Iterable[int]) -> None:
        """Every batch of the task with these states is known now."""
        for number in numbers:
            self.partial.discard(number)
            self.complete.add(number)

    def discard_partial(self, numbers: Iterable[int]) -> None:
        """Other states replace these ones."""
        for number in numbers:
            self.partial.discard(number)

    def begin_sum(self) -> None:
        """A worker is asked for the sum of the complete ones."""
        self.summing, self.complete = self.complete, RangeSet()

    def abort_sum(self) -> None:
        """That worker's answer does not count any more."""
        self.complete, self.summing = self.complete.union(self.summing), RangeSet()

    def end_sum(self, numbers: Iterable[int]) -> RangeSet:
        """The sum is stored; returns what it replaces."""
        replaced, self.summing = self.summing, RangeSet()
        self.add(numbers, is_partial=False)
        return replaced


@dataclass(slots=True, kw_only=True)
class UnneededStates:
    """Stored states that nothing needs any more, until their removal is decided.

    Attributes:
        groups: epochs and evaluations whose states are all unneeded (see ``elasticdl.shared.job.tasks``).
        numbers: numbers of single states.
    """

    groups: list[str] = field(default_factory=list)
    numbers: RangeSet = field(default_factory=RangeSet)

    def __bool__(self) -> bool:
        return bool(self.groups or self.numbers)

    def add(self, numbers: Iterable[int]) -> None:
        """Single states are not needed."""
        add_all(self.numbers, numbers)

    def add_group(self, group: str) -> None:
        """All states of a group are not needed."""
        if group not in self.groups:
            self.groups.append(group)

    def remove(self, groups: Iterable[str], numbers: Iterable[tuple[int, int]]) -> None:
        """Their removal is decided."""
        removed = set(groups)
        self.groups = [group for group in self.groups if group not in removed]
        self.numbers = self.numbers.difference(RangeSet(numbers))


def add_all(to: RangeSet, numbers: Iterable[int]) -> None:
    """Add numbers one by one."""
    for number in numbers:
        to.add(number)
