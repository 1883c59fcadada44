"""What the tables whose rows are admitted by count or expire hold, for the report."""

from __future__ import annotations

from elasticdl.ps.engine.tracked_rows import TableFigures, TrackedRowStore
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.messages.measurements import TableCounted
from elasticdl.shared.model.partitioning import mask_of


def table_figures(shard: ModelShard) -> dict[str, TableFigures]:
    """Table -> what is in the partitions that the shard serves. It looks at every row of these tables."""
    served = mask_of(shard.partitions)
    return {store.table.name: store.figures(served) for store in shard.tables if isinstance(store, TrackedRowStore)}


def has_tracked_tables(core: PsCore) -> bool:
    """Whether there is anything to count."""
    return core.shard is not None and any(table.is_tracked for table in core.shard.signature.tables)


def count_tables(core: PsCore) -> list[TableCounted]:
    """Count the rows of each such table. Pulls and pushes wait meanwhile, about 50 ms for a million rows."""
    with core.lock:
        found = table_figures(core.shard) if core.shard is not None else {}
    return [
        TableCounted(
            table=name,
            rows=one.rows,
            candidates=one.candidates,
            admitted=one.admitted,
            dropped=one.dropped,
        )
        for name, one in found.items()
    ]
