"""Large metric states that nothing needs any more: the core knows their numbers and never their content."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elasticdl.shared.job.rangeset import RangeSet


@dataclass(slots=True, kw_only=True)
class UnneededStates:
    """Stored states that nothing needs any more, until their removal is decided.

    Attributes:
        groups: evaluations whose states are all unneeded (see ``elasticdl.shared.job.tasks``).
    """

    groups: list[str] = field(default_factory=list)
    numbers: RangeSet = field(default_factory=RangeSet)

    def __bool__(self) -> bool:
        return bool(self.groups or self.numbers)

    def add(self, numbers: Iterable[int]) -> None:
        """Single states are not needed."""
        for number in numbers:
            self.numbers.add(number)

    def add_group(self, group: str) -> None:
        """All states of a group are not needed."""
        if group not in self.groups:
            self.groups.append(group)

    def remove(self, groups: Iterable[str], numbers: Iterable[tuple[int, int]]) -> None:
        """Their removal is decided."""
        removed = set(groups)
        self.groups = [group for group in self.groups if group not in removed]
        self.numbers = self.numbers.difference(RangeSet(numbers))
