"""Parquet files: flat columns, read by row group.

A record has no raw bytes here, so its content hash is taken over a canonical encoding of the row that does not depend
on compression, dictionaries or row groups: the hashes of its cells, folded in column order. A cell's hash is taken over
the number as 64 bits (floating point as float64, one NaN, -0.0 apart from 0.0), or over the bytes of a string.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from elasticdl.shared.data.formats.segments import Segment
from elasticdl.shared.data.hashing import Hashes, content_hashes, fold, mix64_array
from elasticdl.shared.data.schema import Column
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display

CACHE_BYTES_MAX = 256 << 20
"""Decoded row groups in the cache, so that the tasks of one row group decode it once."""
_SCAN_ROWS = 1 << 16
_MISSING = np.uint64(0x6D69_7373_696E_6721)


class _RangedFile(io.RawIOBase):
    """A seekable view of a stored object."""

    def __init__(self, store: ObjectStore, info: ObjectInfo) -> None:
        super().__init__()
        self._store = store
        self._info = info
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._info.size_bytes}[whence]
        self._position = origin + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        data = self._store.read(self._info.uri, self._position, None if size < 0 else size)
        self._position += len(data)
        return data

    def size(self) -> int:
        return self._info.size_bytes


def _open(store: ObjectStore, info: ObjectInfo) -> pa.parquet.ParquetFile:
    try:
        return pa.parquet.ParquetFile(pa.PythonFile(_RangedFile(store, info), mode="r"), pre_buffer=True)
    except pa.ArrowException as error:
        raise UserError(
            f"{display(info.uri)} is not a complete Parquet file: {error}",
            hint="Write the file again, or copy it again.",
        ) from error


class Scan:
    """Every row of a file in order; ``columns`` is complete once it was iterated to the end.

    Args:
        store: holds the file.
        info: the file.
    """

    def __init__(self, store: ObjectStore, info: ObjectInfo) -> None:
        self._info = info
        self._file = _open(store, info)
        self._types = {field.name: _column_type(info.uri, field) for field in self._file.schema_arrow}
        if len(self._types) != len(self._file.schema_arrow):
            raise UserError(f"{display(info.uri)} has two columns of the same name", hint="Rename one of them.")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names and types; a number column in which values are missing is ``float64``."""
        return tuple(Column(name=name, type=kind) for name, kind in self._types.items())

    def __iter__(self) -> Iterator[Segment]:
        """Segments of rows.

        Raises:
            UserError: the file is damaged.
        """
        groups = self._file.num_row_groups
        for group in range(groups):
            try:
                for batch in self._file.iter_batches(_SCAN_ROWS, row_groups=[group], use_threads=False):
                    table = pa.Table.from_batches([batch])
                    self._learn(table)
                    positions = np.full(table.num_rows, group, dtype=np.int64)
                    yield Segment(contents=row_hashes(table), positions=positions, end=groups)
            except (pa.ArrowException, OSError) as error:
                raise _damaged(self._info.uri, group, error) from error

    def _learn(self, table: pa.Table) -> None:
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count and self._types[name] not in ("string", "binary"):
                self._types[name] = "float64"


class RowGroups:
    """Ranges of rows of one data set's files; not safe to share between threads.

    Args:
        store: holds the files.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._files: dict[ObjectInfo, tuple[pa.parquet.ParquetFile, npt.NDArray[np.int64]]] = {}
        self._tables: OrderedDict[tuple[ObjectInfo, int], pa.Table] = OrderedDict()

    def read(self, info: ObjectInfo, start: int, end: int) -> pa.Table:
        """The rows ``[start, end)``."""
        if info not in self._files:
            file = _open(self._store, info)
            rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            self._files[info] = file, np.cumsum([0, *rows])
        _, firsts = self._files[info]
        first = int(np.searchsorted(firsts, start, side="right")) - 1
        last = int(np.searchsorted(firsts, end, side="left"))
        parts = []
        for group in range(first, last):
            begin = max(start - int(firsts[group]), 0)
            stop = min(end, int(firsts[group + 1])) - int(firsts[group])
            parts.append(self._group(info, group).slice(begin, stop - begin))
        return pa.concat_tables(parts)

    def _group(self, info: ObjectInfo, group: int) -> pa.Table:
        key = (info, group)
        if key not in self._tables:
            try:
                self._tables[key] = self._files[info][0].read_row_group(group, use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise _damaged(info.uri, group, error) from error
            while len(self._tables) > 1 and sum(table.nbytes for table in self._tables.values()) > CACHE_BYTES_MAX:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        return self._tables[key]


def row_hashes(table: pa.Table) -> Hashes:
    """Content hash of each row, shape ``[rows]``."""
    rows = np.zeros(table.num_rows, dtype=np.uint64)
    for column in table.columns:
        fold(rows, _cell_hashes(_plain(column)))
    return rows


def arrays(table: pa.Table, columns: tuple[Column, ...]) -> dict[str, npt.NDArray[np.generic]]:
    """Rows as numpy arrays of the schema's types, each of shape ``[rows]``."""
    return {column.name: _array(_plain(table[column.name]), column.type) for column in columns}


def _column_type(uri: str, field: pa.Field) -> str:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return "int64"
    if pa.types.is_null(kind):
        return "float64"
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return str(pa.array([], kind).to_numpy(zero_copy_only=False).dtype.name)
    raise UserError(
        f"{display(uri)}: column {field.name!r} has type {field.type}, which can't be read",
        hint="Drop it, or store it as numbers or strings in flat columns.",
    )


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without dictionary, and dates and times as integers in the file's unit."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_temporal(column.type):
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        column = pa.chunked_array([chunk.view(width) for chunk in column.chunks], type=width).cast(pa.int64())
    return column


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _cell_hashes(column: pa.ChunkedArray) -> Hashes:
    missing = column.is_null().to_numpy() if column.null_count else None
    if pa.types.is_null(column.type):
        return np.full(len(column), _MISSING)
    if _is_bytes(column.type):
        hashes = content_hashes([value or b"" for value in column.cast(pa.large_binary()).to_pylist()])
    else:
        if missing is not None:
            column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
        hashes = mix64_array(_bits(column.to_numpy()))
    if missing is not None:
        hashes[missing] = _MISSING
    return hashes


def _bits(values: npt.NDArray[np.generic]) -> Hashes:
    if np.issubdtype(values.dtype, np.floating):
        wide = values.astype(np.float64)
        wide[np.isnan(wide)] = np.nan
        return wide.view(np.uint64)
    if values.dtype == np.uint64:
        return values.astype(np.uint64)
    return values.astype(np.int64).view(np.uint64)


def _array(column: pa.ChunkedArray, kind: str) -> npt.NDArray[np.generic]:
    if kind in ("string", "binary"):
        if column.null_count:
            column = column.fill_null("" if kind == "string" else b"")
        array: npt.NDArray[np.generic] = column.to_numpy()
        return array
    if column.null_count:
        column = column.cast(pa.float64())
    numbers: npt.NDArray[np.generic] = column.to_numpy().astype(np.dtype(kind), copy=False)
    return numbers


def _damaged(uri: str, group: int, error: Exception) -> UserError:
    return UserError(
        f"{display(uri)}: row group {group} can't be read: {error}", hint="Write the file again, or copy it again."
    )
