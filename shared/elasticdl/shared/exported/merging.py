"""Which rows of a table's snapshots are its rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from elasticdl.shared.model.manifests import Manifest
from elasticdl.shared.model.partitioning import hashes_of, mask_of
from elasticdl.shared.model.placement import PARTITIONS, Ranges

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def updates_by_partition(parts: Iterable[tuple[Manifest, Ranges]]) -> npt.NDArray[np.int32]:
    """Optimizer updates of each partition, int32[256]; -1 where no snapshot holds the partition."""
    updates = np.full(PARTITIONS, -1, np.int32)
    for manifest, partitions in parts:
        for group in manifest.groups:
            updates[mask_of(partitions) & mask_of(group.partitions)] = group.iteration
    return updates


def newest_rows(ids: Ids) -> npt.NDArray[np.intp]:
    """Where the last row of each id is, sorted by id; ``ids``: int64[n], in the order in which the rows were saved."""
    reversed_ids = ids[::-1]
    _, first = np.unique(reversed_ids, return_index=True)
    return ids.size - 1 - first


def positions_of(ids: Ids, bits: int) -> npt.NDArray[np.int64]:
    """Position of the file that has the row of each id, int64[n]: the first bits of the id's hash."""
    if not bits:
        return np.zeros(ids.size, np.int64)
    return (hashes_of(ids) >> np.uint64(64 - bits)).astype(np.int64)
