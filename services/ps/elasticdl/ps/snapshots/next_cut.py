"""What the next snapshot of a ps is of, and what it builds on. Pure."""

from __future__ import annotations

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.model_shard import standings_of
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots.history import SnapshotHistory


def next_cut(
    core: PsCore, history: SnapshotHistory, dropped_rows: int, *, flush: bool, extend: bool
) -> tuple[str, ShardCut] | None:
    """The manifest to build on (empty: the snapshot has to be full) and the cut; None: nothing has changed.

    Args:
        core: whose state it is.
        history: the snapshots before.
        dropped_rows: how often rows had been dropped before the last one.
        flush: make an update of half-filled accumulators first.
        extend: see ``SnapshotHistory.base``.
    """
    if history:
        _, newest = history.newest
        if not core.changed_since(standings_of(newest.groups), flush=flush) and core.dropped_rows == dropped_rows:
            return None
    base = history.base(extend=extend)
    cut = core.cut(dirty_only=bool(base), flush=flush)
    if base and cut.dropped_rows != dropped_rows:
        # What was dropped since must not come back from the snapshots before.
        cut.close()
        base, cut = "", core.cut(dirty_only=False, flush=flush)
    return base, cut
