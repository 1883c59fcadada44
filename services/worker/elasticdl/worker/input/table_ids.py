"""Which rows a batch needs: each id once."""

from __future__ import annotations

from elasticdl.shared.model.dedup import unique_inverse
from elasticdl.worker.ports import FedBatch, TableIds, Trainee


def table_ids(model: Trainee, batch: FedBatch | None, *, training: bool) -> dict[str, TableIds]:
    """The rows of each table that a batch needs.

    Args:
        model: finds the ids.
        batch: tensors; None needs none.
        training: whether the batch is to be trained or evaluated.
    """
    found: dict[str, TableIds] = {}
    if batch is None:
        return found
    for table, ids in model.ids(batch, training=training).items():
        unique, inverse = unique_inverse(ids)
        found[table] = TableIds(unique=unique, inverse=inverse)
    return found
