"""Whether the next snapshot is full or incremental, and the cut that it is written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.model_shard import versions_of
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.shared.model.manifests import DamagedError, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class NextCut:
    """What the next snapshot is written from.

    Attributes:
        damages: what is wrong with kept snapshots, by manifest URI: they have to be forgotten.
        base: manifest URI to build on; empty: the snapshot is full.
        cut: the state; None: nothing has changed since the newest snapshot that is not damaged.
    """

    damages: Mapping[str, DamagedError]
    base: str = ""
    cut: ShardCut | None = None


def next_cut(
    core: PsCore, newest: Manifest | None, base: str, dropped_rows: int, *, flush: bool
) -> tuple[str, ShardCut] | None:
    """Cut the present state for a snapshot. Copies the dense weights, so it belongs in a thread that may take a while.

    Args:
        newest: manifest of the last snapshot; None before the first.
        base: manifest URI that an incremental snapshot would build on; empty: the snapshot has to be full.
        dropped_rows: ``core.dropped_rows`` when the last snapshot was cut.

    Returns:
        The manifest URI to build on (empty: the snapshot is full) and the cut; None: nothing changed since ``newest``.
    """
    if newest is not None:
        changed = core.changed_since(versions_of(newest.groups), flush=flush)
        if not changed and core.dropped_rows == dropped_rows:
            return None
    cut = core.cut(dirty_only=bool(base), flush=flush)
    if base and cut.dropped_rows != dropped_rows:
        # Rows that were dropped since the base must not come back from it.
        cut.close()
        base, cut = "", core.cut(dirty_only=False, flush=flush)
    return base, cut
