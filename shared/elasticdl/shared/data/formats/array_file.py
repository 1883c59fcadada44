"""Arrays in files, read by ranges of their first dimension: ``.npy``, ``.npz`` and IDX.

Each array is a column, and its first dimension counts the records. An ``.npy`` file of a structured type has a column
for each field. Nothing is loaded that is not asked for: the place of a record follows from the array's header.

A record has no raw bytes here, so its content hash is taken over the bytes of its cells as they are stored: the hashes
of the cells, folded in column order. A cell of up to 8 bytes is a number itself, of others xxh3_64 is taken.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elasticdl.shared.data.blocks import ColumnBatch, RecordBlock
from elasticdl.shared.data.column_types import FoundColumn, element_type, fill_scalar, selected
from elasticdl.shared.data.formats import arrow_columns
from elasticdl.shared.data.formats.data_format import DataFormat, DataObject, FormatReader, Indices, Scan
from elasticdl.shared.data.formats.gzip_content import GzipContent, is_compressed
from elasticdl.shared.data.formats.segments import Segment
from elasticdl.shared.data.hashing import Hashes, bind, content_hashes, fold, mix64_array
from elasticdl.shared.data.schema import Column, DataSchema, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display

Array = npt.NDArray[Any]
_KINDS = "biufSUMm"
"""Kinds of NumPy types that can be read: booleans, numbers, texts, dates and durations."""
_UNITS = {"D": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds", "us": "microseconds"}
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """An array in a file.

    Attributes:
        name: of the array in messages; empty: the file has only this one.
        offset: bytes before the first element, in the content of a compressed file or member.
        size_bytes: of the content; None: it is compressed, so that only reading shows it.
        deflated_at: where in a zip file the compressed content begins; None: it is not in one, or not compressed.
    """

    uri: str
    name: str = ""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    size_bytes: int | None = None
    deflated_at: int | None = None

    def __post_init__(self) -> None:
        needed = self.offset + math.prod(self.shape) * self.dtype.itemsize
        if self.size_bytes is not None and self.size_bytes < needed:
            raise self.truncated(max(self.size_bytes - self.offset, 0) // max(self.row_bytes, 1))

    @property
    def records(self) -> int:
        """Its first dimension."""
        return self.shape[0] if self.shape else 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a record."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def text(self) -> str:
        """Names it in messages: ``data.npz: array 'x'``."""
        return display(self.uri) + (f": array {self.name!r}" if self.name else "")

    def truncated(self, records: int) -> UserError:
        """The error for an array that is shorter than its header says."""
        return UserError(
            f"{self.text} is truncated: its header promises {self.records:,} records, record {records} (from 0) is "
            "incomplete",
            hint="Write the file again, or copy it again.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayColumn:
    """A column of a file; ``field``: of the array's structured type; empty: the column is the whole array."""

    name: str
    array: StoredArray
    field: str = ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element, as it is stored."""
        return self._field.base if self.field else self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record."""
        return self.array.shape[1:] + (self._field.shape if self.field else ())

    @property
    def _field(self) -> np.dtype[Any]:
        fields = self.array.dtype.fields
        assert fields is not None
        return fields[self.field][0]

    @property
    def type(self) -> tuple[str, str]:
        """The column's type, and the type in the file in words where it is another one."""
        dtype, was = self.dtype, ""
        if dtype.kind not in _KINDS or (dtype.itemsize > 8 and dtype.kind == "f"):
            raise UserError(
                f"{self.array.text}: column {self.name!r} has type {dtype}, which can't be read",
                hint="Store numbers, booleans, texts or dates, or leave it out with --columns.",
            )
        if dtype.kind in "Mm":
            unit = np.datetime_data(dtype)[0]
            kind, was = "int64", f"{dtype.name}, {_UNITS.get(unit, unit)}"
        else:
            kind = {"S": "binary", "U": "string"}.get(dtype.kind) or dtype.newbyteorder("=").name
        shape = f"[{'x'.join(map(str, self.shape))}]" if self.shape else ""
        return kind + shape, was


def columns_of(array: StoredArray, name: str) -> tuple[ArrayColumn, ...]:
    """The columns of an array: one of that name, or its fields."""
    if array.dtype.names is None:
        return (ArrayColumn(name=name, array=array),)
    return tuple(ArrayColumn(name=field, array=array, field=field) for field in array.dtype.names)


class ArrayContent:
    """Reads ranges of arrays; not safe to share between threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._compressed = GzipContent(store)

    def read(self, array: StoredArray, start: int, end: int) -> Array:
        """The records ``[start, end)`` as they are stored, shape ``[end - start, ...]``."""
        begin, size = array.offset + start * array.row_bytes, (end - start) * array.row_bytes
        if array.deflated_at is not None:
            data = self._compressed.read(array.uri, begin, size, deflated_at=array.deflated_at)
        elif is_compressed(array.uri):
            data = self._compressed.read(array.uri, begin, size)
        else:
            data = self._store.read(array.uri, begin, size)
        if len(data) != size:
            raise array.truncated(start + len(data) // array.row_bytes)
        return np.frombuffer(data, array.dtype).reshape(end - start, *array.shape[1:])

    def columns(self, columns: Sequence[ArrayColumn], start: int, end: int) -> list[Array]:
        """The records of several columns; each array is read once."""
        read: dict[tuple[str, str], Array] = {}
        found = []
        for column in columns:
            key = column.array.uri, column.array.name
            if key not in read:
                read[key] = self.read(column.array, start, end)
            found.append(read[key][column.field] if column.field else read[key])
        return found


ReadColumns = Callable[[Sequence[ArrayColumn], int, int], list[Array]]
"""(columns, start, end) -> the records ``[start, end)`` of each."""


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


def scan_arrays(uri: str, arrays: Mapping[str, Array]) -> Scan:
    """Scan arrays as the ``.npz`` file that they are written to will be scanned; ``uri``: of that file."""
    columns = [
        ArrayColumn(name=name, array=StoredArray(uri=uri, name=name, dtype=array.dtype, shape=array.shape, offset=0))
        for name, array in arrays.items()
    ]

    def read(chosen: Sequence[ArrayColumn], start: int, end: int) -> list[Array]:
        return [arrays[column.name][start:end] for column in chosen]

    return _Scan(read, uri, columns, ReaderOptions())


class _Scan(Scan):
    """Every record of a file in order."""

    def __init__(self, read: ReadColumns, uri: str, columns: Sequence[ArrayColumn], options: ReaderOptions) -> None:
        self._uri = uri
        self._read = read
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
            arrays = self._read(self._stored, start, end)
            for number, values in enumerate(arrays):
                self._learn(number, values, start)
            yield Segment(contents=row_hashes(arrays), positions=np.arange(start, end, dtype=np.int64), end=end)

    def _empty(self, column: ArrayColumn, given: str | None) -> FoundColumn:
        natural, was = column.type
        if given in (None, natural):
            return FoundColumn(name=column.name, type=natural, was=was)
        element = element_type(given)
        # A date as a float may be missing. As a smaller integer it could silently be another one.
        can_cast = element.startswith("float") if column.dtype.kind in "Mm" else column.dtype.kind in "biuf"
        can_cast = can_cast and element not in ("string", "binary")
        if given.partition("[")[2] != natural.partition("[")[2] or not can_cast:
            raise UserError(
                f"{column.array.text}: column {column.name!r} has type {natural}, which can't be read as {given}",
                hint="Leave out its --column_types, or leave the column out with --columns.",
            )
        return FoundColumn(name=column.name, type=given, was=natural)

    def _learn(self, number: int, values: Array, first: int) -> None:
        column = self._found[number]
        cast = native(values, column.type)
        absent = np.isnat(values) if values.dtype.kind in "Mm" else None
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
            integers = pa.chunked_array([pa.array(cast, mask=absent)])
            more = arrow_columns.found(column.name, column.type, column.was, integers, first)
            self._found[number] = column.with_more(more)
        elif absent is not None and absent.any():
            rows = absent.reshape(len(values), -1)
            place = first + int(np.argmax(rows.any(axis=1)))
            more = FoundColumn(name=column.name, type=column.type, missing=int(rows.sum()), first_missing=place)
            self._found[number] = column.with_more(more)


def _may_change(values: Array, cast: Array) -> bool:
    """Whether a type that the user gives may not hold a value; rounding to floats is what they ask for."""
    return values.dtype.kind in "biuf" and cast.dtype.kind in "iu" and not np.can_cast(values.dtype, cast.dtype)


def native(values: Array, kind: str, fill: Any = None) -> Array:
    """Values as they are stored in a column's type, which is theirs or one that the user gave.

    Args:
        fill: replaces dates and durations that are NaT. None: they are NaN in floats, and the least int64 in integers.
    """
    element = element_type(kind)
    if values.dtype.kind in "Mm":
        absent = np.isnat(values)
        numbers: Array = values.astype(values.dtype.newbyteorder("=")).view(np.int64)
        if element == "string":
            return np.where(absent, "", numbers.astype(str)).astype(object)
        numbers = numbers.astype(element, copy=False)
        missing = np.nan if fill is None and element.startswith("float") else fill
        return numbers if missing is None or not absent.any() else np.where(absent, missing, numbers).astype(element)
    if element in ("string", "binary"):
        return values.astype(object)
    with np.errstate(invalid="ignore"):  # NaN as an integer differs from itself, and is reported.
        return values.astype(element, copy=False)


def row_hashes(arrays: Sequence[Array]) -> Hashes:
    """Content hash of each record, shape ``[records]``, of columns as stored, each of shape ``[records, ...]``."""
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
    return content_hashes(values.reshape(-1).view(np.uint8).reshape(records, size))


class ArrayFormat(DataFormat):
    """Files whose columns are arrays; a position is the number of a record."""

    @abstractmethod
    def columns(self, store: ObjectStore, info: ObjectInfo) -> tuple[ArrayColumn, ...]:
        """All columns of a source."""

    def scan(self, store: ObjectStore, data: DataObject, options: ReaderOptions) -> Scan:
        """See ``DataFormat``."""
        return _Scan(ArrayContent(store).columns, data.info.uri, self.columns(store, data.info), options)

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
        return ColumnBatch.of({column.name: native(values, column.type, _fill(column)) for column, values in pairs})


def _fill(column: Column) -> Any:
    scalar = None if column.fill is None else fill_scalar(column)
    return None if scalar is None else scalar.as_py()
