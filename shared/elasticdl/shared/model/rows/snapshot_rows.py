"""Chains of snapshots and the rows of tables in them, read from object storage a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from elasticdl.shared.model.manifests import (
    Chunk,
    ChunkPart,
    DamagedError,
    Manifest,
    read_chunk,
    read_manifest,
    rebuilding,
)
from elasticdl.shared.model.partitioning import mask_of, partitions_of
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.storage import ObjectStore

Chain = list[tuple[str, Manifest]]
"""A snapshot and everything that it builds on, each with the URI of its manifest; the full one first."""

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def read_chain(store: ObjectStore, uri: str) -> Chain:
    """A snapshot and all that it builds on, the full one first. ``DamagedError`` if a manifest is missing or bad."""
    chain: Chain = []
    while uri:
        if any(uri == seen for seen, _ in chain):
            raise DamagedError(uri, "builds on itself")
        manifest = read_manifest(store, uri)
        chain.append((uri, manifest))
        uri = manifest.base
    return chain[::-1]


def read_rows(
    store: ObjectStore, chain: Iterable[tuple[str, Manifest]], partitions: Ranges
) -> Iterator[tuple[str, int, Ids, Floats]]:
    """Rows of some partitions, in the order in which they are to be loaded.

    Yields:
        Manifest that they are of, table, ids int64[n], slabs float32[n, slab width].

    Raises:
        DamagedError: an object is missing or damaged; it is named.
    """
    mask = mask_of(partitions)
    for uri, manifest in chain if partitions else ():
        for chunk in manifest.chunks:
            if chunk.part is ChunkPart.ROWS:
                data = read_chunk(store, uri, chunk)
                with rebuilding(uri):
                    ids, slabs = rows_in(data, chunk)
                wanted = mask[partitions_of(ids)]
                yield uri, chunk.table, *((ids, slabs) if wanted.all() else (ids[wanted], slabs[wanted]))


def rows_in(data: bytearray, chunk: Chunk) -> tuple[Ids, Floats]:
    """The rows in the bytes of a chunk: ids int64[n], slabs float32[n, slab width]."""
    ids = np.frombuffer(data, np.int64, chunk.rows)
    floats = np.frombuffer(data, np.float32, offset=ids.nbytes)
    return ids, floats.reshape(chunk.rows, floats.size // chunk.rows if chunk.rows else 0)
