"""Which of several states is the newest, and how each member of a new generation gets it.

A state is named by a lineage (the last generation that opened with it or with an ancestor of it) and a step. All
members have equal states when a generation opens, and a round is committed only with all of them. So states with the
same name are equal, and within a lineage they differ by at most one step. A member that was frozen or cut off keeps its
lineage: what it committed is void once a later generation has opened without it, even if its step is higher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

_LINEAGES_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where the state of a member is.

    Attributes:
        lineages: generations that opened with this very state, the last one at the end. A member may miss that a
            generation has opened: then it has the same state, and need not copy it.
        step: committed rounds in it.
        has_model: False: there is no state at all.
        has_result: the result of the last committed round is at hand, too.
    """

    lineages: tuple[int, ...] = (0,)
    step: int = 0
    has_model: bool = False
    has_result: bool = False

    @property
    def age(self) -> tuple[bool, int, int]:
        """Sorts positions: the newest is the greatest."""
        return self.has_model, self.lineages[-1], self.step

    @property
    def lineage(self) -> int:
        """The last generation that opened with this state or an ancestor of it."""
        return self.lineages[-1]

    def opened(self, generation: int) -> Position:
        """The same state, once a generation has opened with it. All members have the last result, if there is one."""
        return replace(self, lineages=(*self.lineages[1 - _LINEAGES_MAX :], generation), has_result=False)

    def advanced(self) -> Position:
        """The state after the next round."""
        return replace(self, lineages=self.lineages[-1:], step=self.step + 1, has_result=True)

    def is_same(self, other: Position) -> bool:
        """Whether both name the same state."""
        if not (self.has_model and other.has_model and self.step == other.step):
            return False
        return self.lineage in other.lineages or other.lineage in self.lineages


class Lack(Enum):
    """What a member needs to be where another one is."""

    NOTHING = "nothing"
    RESULT = "result"
    STATE = "state"


def lack(behind: Position, ahead: Position) -> Lack:
    """What brings a state to the position of one that is at least as new."""
    if behind.is_same(ahead):
        return Lack.NOTHING
    is_one_step = behind.has_model and behind.lineage == ahead.lineage and behind.step + 1 == ahead.step
    return Lack.RESULT if is_one_step and ahead.has_result else Lack.STATE


def donor(positions: Mapping[int, Position]) -> int:
    """The rank of a member with the newest state: the first one, if possible with its last result at hand."""
    return max(positions, key=lambda rank: (positions[rank].age, positions[rank].has_result, -rank))
