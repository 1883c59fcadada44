"""The rows of a batch: the trained ones from memory-mapped files, the others from the table's initializer."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from elasticdl.shared.exported.layout import ExportedModel
from elasticdl.shared.exported.reading import read_table
from elasticdl.shared.model.partitioning import hashes_of
from elasticdl.shared.model.signature import RowTable

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_Hashes = npt.NDArray[np.uint64]
_DONE = "done"
_Number = TypeVar("_Number", np.uint64, np.float32)


class TableLookup:
    """The rows of one table.

    Args:
        seed: of the model; with the table it determines the rows that are not trained.
        hashes: uint64[n], ascending: the hashes of the ids that are trained. No two ids have the same one.
        rows: float32[n, width], their rows.
    """

    def __init__(self, table: RowTable, seed: int, hashes: _Hashes, rows: Floats) -> None:
        # Its kernels need numba, whose import takes half a second, and a script that uses layers only does without.
        from elasticdl.shared.model.rows.initial_rows import Initializer

        self._table = table
        self._initializer = Initializer.of(table, seed)
        self._hashes = hashes
        self._rows = rows

    def rows(self, ids: Ids) -> Floats:
        """The rows float32[n, width] of ids int64[n]."""
        table = self._table
        if ids.size and (ids.min() < 0 or (table.input_dim and ids.max() >= table.input_dim)):
            wrong = ids[(ids < 0) | (ids >= table.input_dim if table.input_dim else False)][0]
            known = f"has the ids 0 to {table.input_dim - 1:,}" if table.input_dim else "has no negative ids"
            raise ValueError(f"table {table.name!r} {known}, and id {wrong} is asked for")
        found = np.zeros((ids.size, table.width), np.float32)
        wanted = hashes_of(ids)
        places = np.searchsorted(self._hashes, wanted)
        is_trained = np.zeros(ids.size, np.bool_)
        inside = places < self._hashes.size
        is_trained[inside] = self._hashes[places[inside]] == wanted[inside]
        found[is_trained] = self._rows[places[is_trained]]
        self._initializer.fill_missing(ids, np.where(is_trained, 0, -1), 1, found.reshape(-1))
        return found


def open_tables(folder: str, exported: ExportedModel, cache: Path) -> dict[str, TableLookup]:
    """The tables of an export, by name; their rows are copied to local files, unless they are there already.

    Args:
        cache: a local folder for the files, of the size of the tables.

    Raises:
        UserError: a file of the export is missing or damaged.
        OSError: the disk is full, for instance.
    """
    files = cache / exported.version
    if not (files / _DONE).exists():
        _copy(folder, exported, files)
    tables = {}
    for number, (table, there) in enumerate(zip(exported.signature.tables, exported.tables, strict=True)):
        hashes = _mapped(files / f"{number}.hashes", np.dtype(np.uint64), there.rows)
        rows = _mapped(files / f"{number}.rows", np.dtype(np.float32), there.rows * table.width)
        tables[table.name] = TableLookup(table, exported.signature.seed, hashes, rows.reshape(-1, table.width))
    return tables


def _copy(folder: str, exported: ExportedModel, files: Path) -> None:
    """Write the rows of all tables in the order of their hashes; the files of an export are in that order, too."""
    files.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=files.parent, prefix=f"{files.name}-"))
    try:
        for number, (table, there) in enumerate(zip(exported.signature.tables, exported.tables, strict=True)):
            with (
                (unfinished / f"{number}.hashes").open("wb") as hashes,
                (unfinished / f"{number}.rows").open("wb") as out,
            ):
                for ids, rows in read_table(folder, there, table.width):
                    keys = hashes_of(ids)
                    order = np.argsort(keys)
                    hashes.write(keys[order].data)
                    out.write(rows[order].data)
        (unfinished / _DONE).touch()
        with _locked(files.parent):
            if not (files / _DONE).exists():  # Another process may have been quicker.
                shutil.rmtree(files, ignore_errors=True)
                unfinished.rename(files)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """The lock of all processes that use a cache; the system releases it when one dies."""
    descriptor = os.open(cache / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _mapped(file: Path, dtype: np.dtype[_Number], size: int) -> npt.NDArray[_Number]:
    """A file as an array; an empty one can't be mapped."""
    return np.memmap(file, dtype, "r", shape=(size,)) if size else np.empty(0, dtype)
