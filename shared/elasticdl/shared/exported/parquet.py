"""One Parquet file of rows: the columns ``id`` (int64) and ``vector`` (a list of float32 of fixed length)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.manifests import Manifest
from elasticdl.shared.model.partitioning import hashes_of, mask_of
from elasticdl.shared.model.placement import PARTITIONS, Ranges

ID, VECTOR = "id", "vector"
_ROW_GROUP = 1 << 16

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def write_rows(file: Path, ids: Ids, rows: Floats) -> None:
    """Write a local file with ids int64[n], ascending, and their rows float32[n, width]."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    table = pa.table({ID: pa.array(ids), VECTOR: vectors})
    # Trained floats have neither repetitions nor patterns.
    pyarrow.parquet.write_table(table, file, row_group_size=_ROW_GROUP, use_dictionary=False, compression="none")


def read_rows(data: bytes, width: int, name: str) -> tuple[Ids, Floats]:
    """The rows in the bytes of a file: ids int64[n], rows float32[n, width]."""
    try:
        table = pyarrow.parquet.read_table(pa.BufferReader(data), columns=[ID, VECTOR], use_threads=False)
        vectors = table.column(VECTOR).combine_chunks()
        lengths = pc.unique(pc.list_value_length(vectors)).to_pylist()
        if lengths not in ([], [width]) or table.column(ID).null_count:
            raise UserError(f"{name} has no columns {ID} and {VECTOR} with {width} floats in each row")
        ids = table.column(ID).to_numpy().astype(np.int64, casting="safe")
        values = vectors.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
    except (pa.ArrowException, TypeError) as error:
        raise UserError(f"{name} can't be read as a Parquet file of rows: {error}") from error
    return ids, values.reshape(-1, width)


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
