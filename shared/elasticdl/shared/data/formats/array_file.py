"""Files of arrays: their scan, and their records by range.

A record has no raw bytes here, so its content hash is taken over the bytes of its cells as they are stored: the hashes
of the cells, folded in column order. A cell of up to 8 bytes is a number itself, of others xxh3_64 is taken.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from elasticdl.shared.data.blocks import ColumnBatch, RecordBlock
from elasticdl.shared.data.column_types import FoundColumn, element_type, selected
from elasticdl.shared.data.formats import arrow_columns
from elasticdl.shared.data.formats.arrays import Array, ArrayColumn, ArrayContent
from elasticdl.shared.data.formats.data_format import DataFormat, DataObject, FormatReader, Indices, Scan
from elasticdl.shared.data.formats.segments import Segment
from elasticdl.shared.data.hashing import Hashes, bind, content_hashes, fold, mix64_array
from elasticdl.shared.data.schema import Column, DataSchema, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display

_CHUNK_BYTES = 4 << 20


def _chosen(uri: str, columns: Sequence[ArrayColumn], options: ReaderOptions) -> tuple[ArrayColumn, ...]:
    """The columns to read, all of the same number of records."""
    by_name = {column.name: column for column in columns}
    chosen = tuple(by_name[name] for name in selected(uri, list(by_name), options))
    counts = {column.name: column.array.records for column in chosen}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        most = max(set(counts.values()), key=[*counts.values()].count)
        same = ",".join(name for name, count in counts.items() if count == most)
        raise UserError(
            f"{display(uri)}: arrays differ in their first dimension, the number of records: {listed}",
            hint=f"Choose those that belong together, for instance --columns {same}.",
        )
    for column in chosen:
        if not column.array.shape or not column.array.row_bytes:
            raise UserError(
                f"{column.array.text} has the shape {column.array.shape}, so it has no records",
                hint="Leave it out with --columns, or save an array whose first dimension counts the records.",
            )
    return chosen


class _Scan(Scan):
    """Every record of a file in order."""

    def __init__(self, store: ObjectStore, uri: str, columns: Sequence[ArrayColumn], options: ReaderOptions) -> None:
        self._uri = uri
        self._content = ArrayContent(store)
        self._stored = _chosen(uri, columns, options)
        self.names = tuple(column.name for column in self._stored)
        self._found = [self._empty(column, options.column_types.get(column.name)) for column in self._stored]

    @property
    def columns(self) -> tuple[FoundColumn, ...]:
        return tuple(self._found)

    def __iter__(self) -> Iterator[Segment]:
        records = self._stored[0].array.records
        step = max(1, _CHUNK_BYTES // sum(column.array.row_bytes for column in self._stored))
        for start in range(0, records, step):
            end = min(start + step, records)
            arrays = self._content.columns(self._stored, start, end)
            for number, values in enumerate(arrays):
                self._learn(number, values, start)
            yield Segment(contents=row_hashes(arrays), positions=np.arange(start, end, dtype=np.int64), end=end)

    def _empty(self, column: ArrayColumn, given: str | None) -> FoundColumn:
        natural, was = column.type
        if given in (None, natural):
            return FoundColumn(name=column.name, type=natural, was=was)
        can_cast = column.dtype.kind in "biuf" and element_type(given) not in ("string", "binary")
        if given.partition("[")[2] != natural.partition("[")[2] or not can_cast:
            raise UserError(
                f"{column.array.text}: column {column.name!r} has type {natural}, which can't be read as {given}",
                hint="Leave out its --column_types, or leave the column out with --columns.",
            )
        return FoundColumn(name=column.name, type=given, was=natural)

    def _learn(self, number: int, values: Array, first: int) -> None:
        column = self._found[number]
        cast = native(values, column.type)
        if _may_change(values, cast):
            wrong = (cast != values).reshape(len(values), -1)
            if wrong.any():
                record, place = divmod(int(np.argmax(wrong)), wrong.shape[1])
                raise UserError(
                    f"{display(self._uri)}, record {first + record} (from 0): column {column.name!r} is not "
                    f"{column.type}: {values.reshape(wrong.shape)[record, place]}",
                    hint=f"Correct the value, or give the column another type with --column_types {column.name}=TYPE.",
                )
        if cast.ndim == 1 and cast.dtype.kind in "iu":
            more = arrow_columns.found(column.name, column.type, column.was, pa.chunked_array([pa.array(cast)]), first)
            self._found[number] = column.with_more(more)


def _may_change(values: Array, cast: Array) -> bool:
    """Whether a type that the user gives may not hold a value; rounding to floats is what they ask for."""
    return values.dtype.kind in "biuf" and cast.dtype.kind in "iu" and not np.can_cast(values.dtype, cast.dtype)


def native(values: Array, kind: str) -> Array:
    """Values as they are stored in a column's type, which is theirs or one that the user gave."""
    element = element_type(kind)
    if element in ("string", "binary"):
        return values.astype(object)
    if values.dtype.kind in "Mm":
        return values.astype(values.dtype.newbyteorder("=")).view(np.int64)
    with np.errstate(invalid="ignore"):  # NaN as an integer differs from itself, and is reported.
        return values.astype(element, copy=False)


def row_hashes(arrays: Sequence[Array]) -> Hashes:
    """Content hash of each record, shape ``[records]``.

    Args:
        arrays: the columns as they are stored, each of shape ``[records, ...]``.
    """
    rows = np.zeros(len(arrays[0]), dtype=np.uint64)
    for values in arrays:
        fold(rows, _cell_hashes(np.ascontiguousarray(values)))
    return rows


def _cell_hashes(values: Array) -> Hashes:
    records = len(values)
    size = values.nbytes // max(records, 1)
    if size <= 8:
        cells = np.zeros((records, 8), np.uint8)
        cells[:, :size] = values.reshape(-1).view(np.uint8).reshape(records, size)
        return mix64_array(cells.view("<u8")[:, 0].astype(np.uint64))
    data = values.tobytes()
    return content_hashes([data[begin : begin + size] for begin in range(0, records * size, size)])


class ArrayFormat(DataFormat):
    """Files whose columns are arrays; a position is the number of a record."""

    @abstractmethod
    def columns(self, store: ObjectStore, info: ObjectInfo) -> tuple[ArrayColumn, ...]:
        """All columns of a source.

        Raises:
            UserError: a file is damaged, or an array can't be read by records.
        """

    def scan(self, store: ObjectStore, data: DataObject, options: ReaderOptions) -> Scan:
        """See ``DataFormat``."""
        return _Scan(store, data.info.uri, self.columns(store, data.info), options)

    def reader(self, store: ObjectStore, schema: DataSchema, index: Indices) -> FormatReader:
        """See ``DataFormat``."""
        return _Reader(self, store, schema.columns)


class _Reader(FormatReader):
    def __init__(self, data_format: ArrayFormat, store: ObjectStore, columns: Sequence[Column]) -> None:
        self._format = data_format
        self._store = store
        self._columns = columns
        self._content = ArrayContent(store)
        self._files: dict[ObjectInfo, tuple[ArrayColumn, ...]] = {}

    def read(self, info: ObjectInfo, shard: Shard) -> RecordBlock:
        if info not in self._files:
            options = ReaderOptions(columns=tuple(column.name for column in self._columns))
            self._files[info] = _chosen(info.uri, self._format.columns(self._store, info), options)
        arrays = self._content.columns(self._files[info], shard.start, shard.end)
        hashes = bind(row_hashes(arrays), shard.source, shard.start)
        return RecordBlock(lines=None, hashes=hashes, parse=partial(self._converted, arrays))

    def _converted(self, arrays: Sequence[Array]) -> ColumnBatch:
        pairs = zip(self._columns, arrays, strict=True)
        return ColumnBatch.of({column.name: native(values, column.type) for column, values in pairs})
