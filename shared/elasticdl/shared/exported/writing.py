"""Writes an export with tables in Parquet from snapshots: one process, whose memory does not depend on the tables."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elasticdl.shared.errors import PermanentError
from elasticdl.shared.exported.layout import (
    DENSE,
    MARK,
    MODEL,
    ExportedModel,
    ExportedTable,
    bits_for,
    folder_names,
    is_version,
    part_name,
    version_of,
)
from elasticdl.shared.exported.parquet import newest_rows, positions_of, updates_by_partition, write_rows
from elasticdl.shared.job.model_file import KERAS_FILE, SAVED_MODEL, WEIGHTS_FILE
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.model.manifests import ChunkPart, read_manifest
from elasticdl.shared.model.partitioning import partitions_of
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.model.rows.saved_rows import SavedRows
from elasticdl.shared.model.rows.snapshot_rows import Chain, read_chain, read_rows
from elasticdl.shared.model.signature import ModelSignature, RowTable
from elasticdl.shared.storage import ObjectStore, join, open_store, scheme_of, to_uri
from elasticdl.shared.storage.file_store import translate
from elasticdl.shared.storage.uris import local_path

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Parts = Sequence[tuple[str, Ranges]]
"""URIs of manifests, and the partitions to take from each."""
_Bytes = npt.NDArray[np.uint8]


class SpilledRows:
    """Takes the rows of a table in any order, and gives them by file.

    Args:
        folder: an empty local folder.
        bits: the first bits of an id's hash are the position of its file.
    """

    def __init__(self, folder: Path, bits: int, slab_width: int) -> None:
        self._folder = folder
        self._bits = bits
        self._slab_width = slab_width

    def add(self, ids: Ids, slabs: Floats) -> None:
        """Add rows: ids int64[n], slabs float32[n, slab width]. A later row of an id replaces an earlier one."""
        positions = positions_of(ids, self._bits)
        order = np.argsort(positions, kind="stable")
        records = np.empty((ids.size, 8 + 4 * self._slab_width), np.uint8)
        records[:, :8] = ids[order].view(np.uint8).reshape(-1, 8)
        records[:, 8:] = np.ascontiguousarray(slabs[order]).view(np.uint8).reshape(ids.size, -1)
        present, starts = np.unique(positions[order], return_index=True)
        for position, part in zip(present.tolist(), np.split(records, starts[1:]), strict=True):
            with self._file(position).open("ab") as file:
                file.write(part.data)

    def parts(self) -> Iterator[tuple[int, Ids, Floats]]:
        """The newest row of each id, a file at a time; its rows are sorted by id.

        Yields:
            The position of the file, ids int64[n], slabs float32[n, slab width].
        """
        for position in range(1 << self._bits):
            file = self._file(position)
            if not file.exists():
                continue
            records = np.fromfile(file, np.uint8).reshape(-1, 8 + 4 * self._slab_width)
            file.unlink()
            ids = np.ascontiguousarray(records[:, :8]).view(np.int64).reshape(-1)
            newest = newest_rows(ids)
            slabs = records[newest, 8:].view(np.float32)
            yield position, ids[newest], slabs

    def _file(self, position: int) -> Path:
        return self._folder / f"rows-{position}"


@dataclass(frozen=True, slots=True)
class _Source:
    """A snapshot, the partitions to take from it, and what its rows mean."""

    chain: Chain
    partitions: Ranges
    saved: SavedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesExport:
    """What an export with tables in Parquet is made of.

    Attributes:
        adapted: URIs of the states of adapted layers.
        write_model: writes the model without its tables into a local file.
    """

    job: str
    signature: ModelSignature
    dense: Floats
    parts: Parts
    snapshots: ObjectStore
    adapted: Sequence[str]
    write_model: Callable[[Path], object]

    def write(self, output: str, progress: Callable[[], None] = lambda: None) -> None:
        """Write it to a folder, replacing what is there once it is complete."""
        store, version = open_store(output), version_of(uri for uri, _ in self.parts)
        chains = [(read_chain(self.snapshots, uri), partitions) for uri, partitions in self.parts]
        sources = [_Source(chain, partitions, SavedRows(self.signature, chain)) for chain, partitions in chains]
        with tempfile.TemporaryDirectory(prefix="elasticdl-export-") as name:
            try:
                tables = self._tables(sources, store, output, version, Path(name), progress)
                file = Path(name, MODEL)
                self.write_model(file)
                store.write(join(output, version, MODEL), file)
            except OSError as error:
                raise translate(error, to_uri(name)) from error
        data = io.BytesIO()
        np.save(data, self.dense)
        store.write(join(output, version, DENSE), data.getvalue())
        adapted = tuple(join(version, "adapted", uri.rpartition("/")[2]) for uri in self.adapted)
        for source, target in zip(self.adapted, adapted, strict=True):
            store.write(join(output, target), open_store(source).read(source))
        exported = ExportedModel(
            job=self.job, version=version, signature=self._final_signature(sources), tables=tables, adapted=adapted
        )
        store.write(join(output, MARK), exported.to_json().encode())
        _delete_others(store, output, version)

    def _final_signature(self, sources: Sequence[_Source]) -> ModelSignature:
        """The model, whose initializers give the rows without a gradient as they are now: weight decay shrinks them."""
        tables = []
        for number, table in enumerate(self.signature.tables):
            factors = None
            for source in sources:
                factors = source.saved.initial_factors(number, source.partitions, factors)
            # All partitions of a finished job have made the same updates.
            factor = 1.0 if factors is None else float(np.median(factors))
            tables.append(replace(table, initializer=table.initializer.scaled(factor)))
        return replace(self.signature, tables=tuple(tables))

    def _tables(
        self,
        sources: Sequence[_Source],
        store: ObjectStore,
        output: str,
        version: str,
        folder: Path,
        progress: Callable[[], None],
    ) -> tuple[ExportedTable, ...]:
        updates = updates_by_partition((source.chain[-1][1], source.partitions) for source in sources)
        if (updates < 0).any():
            raise PermanentError(f"the snapshots of job {self.job} do not contain all partitions of its model")
        names = folder_names([table.name for table in self.signature.tables])
        written = []
        for number, table in enumerate(self.signature.tables):
            rows = _RowsOfTable(self.snapshots, sources, number, updates, table)
            files = [""] * (1 << rows.bits)
            count = 0
            with tempfile.TemporaryDirectory(dir=folder) as spilled:
                for position, ids, vectors in rows.read(Path(spilled), progress):
                    files[position] = part_name(version, names[number], position)
                    write_rows(folder / "part", ids, vectors)
                    store.write(join(output, files[position]), folder / "part")
                    count += ids.size
                    progress()
            written.append(ExportedTable(name=table.name, rows=count, bits=rows.bits, files=tuple(files)))
        return tuple(written)


def served_parts(manifests: Sequence[str]) -> Parts:
    """The partitions that each of some snapshots serves."""
    parts = []
    for uri in manifests:
        groups = read_manifest(open_store(uri), uri).groups
        bounds = (one for group in groups if not group.move for one in group.partitions)
        parts.append((uri, tuple(RangeSet(bounds).ranges())))
    return parts


class _RowsOfTable:
    """The trained rows of one table in some snapshots."""

    def __init__(
        self,
        store: ObjectStore,
        sources: Sequence[_Source],
        number: int,
        updates: npt.NDArray[np.int32],
        table: RowTable,
    ) -> None:
        self._store = store
        self._number = number
        self._sources = [replace(source, chain=_only(source.chain, number)) for source in sources]
        self._updates = updates
        self._table = table
        self._slab_width = table.width + (table.expire_after > 0)
        rows = sum(chunk.rows for source in self._sources for _, one in source.chain for chunk in one.chunks)
        self.bits = bits_for(rows * (8 + 4 * self._slab_width))

    def read(self, folder: Path, progress: Callable[[], None]) -> Iterator[tuple[int, Ids, Floats]]:
        """Position of each file, its ids int64[n] in ascending order, and their rows float32[n, width].

        Args:
            folder: an empty local folder with room for the rows.
        """
        spilled = SpilledRows(folder, self.bits, self._slab_width)
        width, expire_after = self._table.width, self._table.expire_after
        for source in self._sources:
            for _, _, ids, slabs in read_rows(self._store, source.chain, source.partitions):
                # After the weights comes the update that touched the row last, if rows expire.
                spilled.add(ids, source.saved.weights(self._number, ids, slabs))
                progress()
        for position, ids, slabs in spilled.parts():
            stays = np.ones(ids.size, np.bool_)
            if expire_after:
                touched = np.ascontiguousarray(slabs[:, -1]).view(np.int32)
                stays = self._updates[partitions_of(ids)] - touched < expire_after
            if stays.any():
                yield position, ids[stays], np.ascontiguousarray(slabs[stays, :width])


def _only(chain: Chain, number: int) -> Chain:
    """The snapshots with the rows of one table alone."""
    return [
        (uri, replace(one, chunks=tuple(c for c in one.chunks if c.part is ChunkPart.ROWS and c.table == number)))
        for uri, one in chain
    ]


def delete_tables(output: str) -> None:
    """Delete what earlier exports have left in a folder, because the files of a model are there now."""
    store = open_store(output)
    store.delete(join(output, MARK))
    _delete(store, output, lambda name: is_version(name) or name == WEIGHTS_FILE)


def _delete_others(store: ObjectStore, output: str, version: str) -> None:
    """Delete what earlier exports have left in a folder."""
    _delete(
        store,
        output,
        lambda name: name in (KERAS_FILE, SAVED_MODEL, WEIGHTS_FILE) or (is_version(name) and name != version),
    )


def _delete(store: ObjectStore, output: str, is_obsolete: Callable[[str], bool]) -> None:
    """Delete the files and folders directly in a folder whose names are obsolete."""
    prefix = join(output, "")
    found = [info.uri for info in store.list(prefix)]
    names = {uri: uri.removeprefix(prefix).partition("/")[0] for uri in found}
    for uri, name in names.items():
        if is_obsolete(name):
            store.delete(uri)
    for name in {*names.values()} if scheme_of(output) == "file" else ():
        folder = local_path(join(output, name))
        if is_obsolete(name) and folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)  # Only empty folders are left in it.
