"""Which rows a batch needs: each id once."""

from __future__ import annotations

from typing import Any

from elasticdl.shared.dedup import unique_inverse
from elasticdl.worker.ports import TableIds, Trainee


def table_ids(model: Trainee, batch: Any, *, training: bool) -> dict[str, TableIds]:
    """The rows of each table that a batch needs.

    Args:
        model: finds the ids.
        batch: tensors.
        training: whether the batch is to be trained or evaluated.
    """
    found = {}
    for table, ids in model.ids(batch, training=training).items():
        unique, inverse = unique_inverse(ids)
        found[table] = TableIds(unique=unique, inverse=inverse)
    return found
