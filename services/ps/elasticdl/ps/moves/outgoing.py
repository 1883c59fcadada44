"""What a donor copied for a move so far: each copy contains what changed since the one before."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.ps.shard.shard_cut import ShardCut


class OutgoingCopies:
    """The copies of one move. They are independent of the snapshots of the donor: neither relies on the other."""

    def __init__(self) -> None:
        self._move = 0
        self.base = ""
        """Manifest URI of the last copy; empty: the next copy is the first one."""
        self.since: Sequence[int] = ()
        """``ShardCut.generations`` of the last copy: the next one contains the rows that changed after it."""

    def begin(self, move: int) -> None:
        """Prepare the next copy; the first copy of another move starts over."""
        if move != self._move:
            self._move, self.since, self.base = move, (), ""

    def add(self, uri: str, cut: ShardCut) -> None:
        """A copy is complete."""
        self.base, self.since = uri, cut.generations
