"""The weights of a file that a job starts from, written as a snapshot that no ps has taken.

    STORAGE/initial/snapshots/file/0-000000/{dense,rows-TABLE-CHUNK,...,manifest}

So a ps reads them as it reads the snapshots of another job: each one the rows of its own partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.model.manifests import (
    CHUNK_BYTES,
    MANIFEST_NAME,
    Chunk,
    ChunkPart,
    GroupState,
    Manifest,
    checksum_of,
    encode_manifest,
    snapshots_folder,
)
from elasticdl.shared.model.placement import ALL
from elasticdl.shared.model.signature import DenseVariable, ModelSignature, Optimizer, RowInitializer, RowTable
from elasticdl.shared.model.signature import VariableKind as Kind
from elasticdl.shared.names import Incarnation, JobId, PodName
from elasticdl.shared.storage import ObjectStore

_JOB, _PS, _INCARNATION = JobId("initial"), PodName("file"), Incarnation("0")
_FOLDER = f"{_INCARNATION}-000000"
"""As ``manifests`` name a first snapshot."""

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


_ZEROS = RowInitializer(distribution="zeros")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTable:
    """The rows of one table.

    Attributes:
        rows: number of ids of the table; 0: any number.
        width: floats per row.
        chunks: gives ids int64[n] and their rows float32[n, width], as many at a time as fit into the memory.
    """

    rows: int
    width: int
    chunks: Callable[[], Iterable[tuple[Ids, Floats]]]
    initializer: RowInitializer = _ZEROS

    @classmethod
    def of(cls, values: Floats) -> WeightTable:
        """A table in memory, float32 (rows, width)."""
        return cls(rows=len(values), width=values.shape[1], chunks=lambda: [(np.arange(len(values)), values)])


def signature_of(dense: Mapping[str, tuple[int, ...]], tables: Mapping[str, tuple[int, int]]) -> ModelSignature:
    """A model of which only the weights are known; ``tables``: name -> rows and width of each table."""
    return ModelSignature(
        dense=tuple(DenseVariable(name=name, shape=shape, kind=Kind.FROZEN) for name, shape in dense.items()),
        tables=tuple(
            RowTable(
                name=name,
                width=width,
                initializer=_ZEROS,
                input_dim=rows,
                kind=Kind.FROZEN,
            )
            for name, (rows, width) in tables.items()
        ),
        optimizer=Optimizer(name="sgd", learning_rate=0.0),
        seed=0,
    )


def write_weights(
    store: ObjectStore, storage: str, dense: Mapping[str, Floats], tables: Mapping[str, WeightTable]
) -> str:
    """Write weights where a ps can read them.

    Args:
        dense: name -> values of each variable, float32 of its shape.
        tables: name -> each table.

    Returns:
        URI of the manifest.
    """
    shapes = {name: values.shape for name, values in dense.items()}
    sizes = {name: (table.rows, table.width) for name, table in tables.items()}
    known = signature_of(shapes, sizes)
    with_initializers = tuple(replace(one, initializer=tables[one.name].initializer) for one in known.tables)
    folder = snapshots_folder(storage, _JOB, _PS, _FOLDER)
    chunks = []
    for data, chunk in _chunks(list(dense.values()), list(tables.values())):
        store.write(folder + chunk.name, data)
        chunks.append(chunk)
    # All variables are frozen, so a group that covers everything holds them in the order of the signature.
    group = GroupState(partitions=ALL, ledger=LedgerRecord(), iteration=0, rate=0.0, accumulated=0)
    manifest = Manifest(
        job=_JOB,
        ps=_PS,
        incarnation=_INCARNATION,
        number=0,
        plan="",
        signature=replace(known, tables=with_initializers).to_json(),
        placement_version=0,
        groups=(group,),
        chunks=tuple(chunks),
    )
    store.write(folder + MANIFEST_NAME, encode_manifest(manifest))
    return folder + MANIFEST_NAME


def _chunks(dense: list[Floats], tables: list[WeightTable]) -> Iterator[tuple[bytes, Chunk]]:
    def chunk(name: str, part: ChunkPart, data: bytes, table: int = 0, rows: int = 0) -> tuple[bytes, Chunk]:
        facts = Chunk(name=name, part=part, table=table, rows=rows, size_bytes=len(data), checksum=checksum_of(data))
        return data, facts

    yield chunk("dense-0", ChunkPart.DENSE, b"".join(values.tobytes() for values in dense))
    for number, table in enumerate(tables):
        rows_max = max(1, CHUNK_BYTES // (8 + 4 * table.width))
        pieces = (
            (ids[start : start + rows_max], rows[start : start + rows_max])
            for ids, rows in table.chunks()
            for start in range(0, ids.size, rows_max)
        )
        for position, (ids, rows) in enumerate(pieces):
            data = ids.astype(np.int64, copy=False).tobytes() + rows.tobytes()
            yield chunk(f"rows-{number}-{position:05d}", ChunkPart.ROWS, data, number, ids.size)
