"""What the tables whose rows are admitted by count or expire hold, for the report."""

from __future__ import annotations

from elasticdl.ps.engine.tracked_rows import TableFigures, TrackedRowStore
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.model.partitioning import mask_of


def table_figures(shard: ModelShard) -> dict[str, TableFigures]:
    """Table -> what is in the partitions that the shard serves. It looks at every row of these tables."""
    served = mask_of(shard.partitions)
    return {store.table.name: store.figures(served) for store in shard.tables if isinstance(store, TrackedRowStore)}
