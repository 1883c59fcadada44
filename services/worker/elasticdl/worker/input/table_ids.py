"""Which rows a batch needs: each id once."""

from __future__ import annotations

from elasticdl.shared.model.dedup import unique_by_table
from elasticdl.worker.ports import FedBatch, TableIds, Trainee


def table_ids(model: Trainee, batch: FedBatch | None, *, training: bool) -> dict[str, TableIds]:
    """The rows of each table that a batch needs; ``batch``: tensors; None needs none."""
    if batch is None:
        return {}
    unique = unique_by_table(model.ids(batch, training=training))
    return {table: TableIds(unique=ids, inverse=inverse) for table, (ids, inverse) in unique.items()}
