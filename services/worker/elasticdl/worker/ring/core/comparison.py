"""Whether the replicas of all members are equal: a leader compares the checksums of their weights.

All members commit the same rounds, so they differ only if a machine makes mistakes, or its kernels round otherwise. The
most frequent weights are taken to be right; if several are as frequent, those of the member with the lowest rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

Checksums = tuple[int, ...]
"""One of each tensor of the model, in the order of its signature."""


class Comparison:
    """Checksums of the members of one generation, by step."""

    def __init__(self) -> None:
        self._received: dict[int, dict[int, Checksums]] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether some members have said what their weights are at some step, and others have not."""
        return bool(self._received)

    def add(self, rank: int, step: int, checksums: Checksums, *, size: int) -> Mapping[int, int]:
        """A member says what its weights are at a step.

        Returns:
            Once all ``size`` members have: the ranks of those whose weights differ, and the first tensor that does.
        """
        received = self._received.setdefault(step, {})
        received[rank] = checksums
        if len(received) < size:
            return {}
        self._received = {other: one for other, one in self._received.items() if other > step}
        count = Counter(received.values())
        right = max(received, key=lambda rank: (count[received[rank]], -rank))
        return {
            rank: _first_difference(one, received[right]) for rank, one in received.items() if one != received[right]
        }

    def clear(self) -> None:
        """The generation has ended."""
        self._received.clear()


def _first_difference(one: Checksums, other: Checksums) -> int:
    return next((number for number, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
