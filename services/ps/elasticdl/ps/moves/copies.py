"""What a donor has copied for a move so far: each copy has what changed since the one before."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.shard_cut import ShardCut


class Copies:
    """The copies of one move, apart from the ps' own snapshots: neither knows what the other has saved.

    Args:
        core: of the donor.
    """

    def __init__(self, core: PsCore) -> None:
        self._core = core
        self._move = 0
        self._since: Sequence[int] = ()
        self.base = ""
        """Manifest of the last copy; empty: the next one is the first."""

    def cut(self, move: int) -> ShardCut:
        """The present state, of the rows only those that the move's copies lack."""
        if move != self._move:
            self._move, self._since, self.base = move, (), ""
        return self._core.cut(dirty_only=False, flush=False, since=self._since)

    def add(self, uri: str, cut: ShardCut) -> None:
        """A copy is complete."""
        self.base, self._since = uri, cut.generations
