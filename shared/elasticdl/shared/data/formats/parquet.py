"""Parquet files: columns of numbers, strings and lists of them, read by row group.

A record has no raw bytes here, so its content hash is taken over a canonical encoding of the row that does not depend
on compression, dictionaries or row groups: the hashes of its cells, folded in column order. A cell's hash is taken over
the number as 64 bits (floating point as float64, one NaN, -0.0 apart from 0.0), over the bytes of a string, or over the
length and the elements of a list.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from elasticdl.shared.data.blocks import ColumnBatch, RecordBlock
from elasticdl.shared.data.column_types import FoundColumn, selected
from elasticdl.shared.data.formats.arrow_columns import arrays, converted, found, natural_type, row_hashes
from elasticdl.shared.data.formats.data_format import DataFormat, DataObject, FormatReader, Indices, Scan
from elasticdl.shared.data.formats.ranged_file import RangedFile
from elasticdl.shared.data.formats.segments import Segment
from elasticdl.shared.data.hashing import bind
from elasticdl.shared.data.schema import Column, DataSchema, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display

CACHE_BYTES_MAX = 256 << 20
"""Decoded row groups in the cache, so that the tasks of one row group decode it once."""
PAGE_ROWS = 1 << 12
"""Rows that are hashed and converted together where tasks are small: a call for each column costs more than 26 rows."""
PAGES_BYTES_MAX = 128 << 20
"""Such pages in the cache. Small tasks are read in random order: a page that is not there costs more than a step."""
_SCAN_ROWS = 1 << 16


def _open(store: ObjectStore, info: ObjectInfo) -> pa.parquet.ParquetFile:
    try:
        return pa.parquet.ParquetFile(pa.PythonFile(RangedFile(store, info), mode="r"), pre_buffer=True)
    except pa.ArrowException as error:
        raise UserError(
            f"{display(info.uri)} is not a complete Parquet file: {error}",
            hint="Write the file again, or copy it again.",
        ) from error


class _Scan(Scan):
    """Every row of a file in order."""

    def __init__(self, store: ObjectStore, info: ObjectInfo, options: ReaderOptions) -> None:
        self._uri = info.uri
        self._file = _open(store, info)
        schema = self._file.schema_arrow
        if len(set(schema.names)) != len(schema.names):
            raise UserError(f"{display(info.uri)} has two columns of the same name", hint="Rename one of them.")
        has_same = set(schema.names) == set(options.column_order)
        self.names = selected(info.uri, options.column_order if has_same else schema.names, options)
        types = [self._type(schema.field(name), options.column_types.get(name)) for name in self.names]
        self._found = [
            FoundColumn(name=name, type=kind, was=was) for name, (kind, was) in zip(self.names, types, strict=True)
        ]
        self._records = 0

    @property
    def columns(self) -> tuple[FoundColumn, ...]:
        return tuple(self._found)

    def __iter__(self) -> Iterator[Segment]:
        return self._segments(range(self._file.num_row_groups))

    def part(self, start: int, stop: int, begin: int | None) -> tuple[int, int, list[Segment]]:
        """The rows of the row groups ``[start, stop)``."""
        return start, stop, list(self._segments(range(start, stop)))

    def _segments(self, groups: range) -> Iterator[Segment]:
        for group in groups:
            try:
                for table in _tables(self._file, group, self.names):
                    self._learn(table)
                    positions = np.full(table.num_rows, group, dtype=np.int64)
                    yield Segment(contents=row_hashes(table), positions=positions, end=self._file.num_row_groups)
                    self._records += table.num_rows
            except (pa.ArrowException, OSError) as error:
                raise _damaged(self._uri, group, error) from error

    def _type(self, field: pa.Field, given: str | None) -> tuple[str, str]:
        natural, was = natural_type(field.type)
        if given in (None, natural) and natural:
            return natural, was
        can_cast = given and not pa.types.is_nested(field.type)
        if given is None or not can_cast:
            raise UserError(
                f"{display(self._uri)}: column {field.name!r} has type {field.type}, which can't be read"
                + (f" as {given}" if given else ""),
                hint="Leave it out with --columns, or store it as numbers, strings or lists of them."
                if pa.types.is_nested(field.type)
                else f"Give a type to read it as: --column_types {field.name}=float64, or leave it out with --columns.",
            )
        return given, natural or str(field.type)

    def _learn(self, table: pa.Table) -> None:
        for place, column in enumerate(self._found):
            values = self._converted(table, column)
            self._found[place] = column.with_more(found(column.name, column.type, column.was, values, self._records))

    def _converted(self, table: pa.Table, column: FoundColumn) -> pa.ChunkedArray:
        values = table[column.name]
        if column.type == "null":
            return values
        try:
            return converted(values, column.type)
        except pa.ArrowException as error:
            record = _first_that_fails(values, column.type)
            raise UserError(
                f"{display(self._uri)}, record {self._records + record} (from 0): column {column.name!r} is not "
                f"{column.type}: {values[record].as_py()!r}",
                hint=f"Correct the value, or give the column another type with --column_types {column.name}=TYPE.",
            ) from error


def _first_that_fails(values: pa.ChunkedArray, kind: str) -> int:
    """The place of the first value that can't be converted, by bisection."""
    begin, end = 0, len(values)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            converted(values.slice(begin, middle - begin), kind)
            begin = middle
        except pa.ArrowException:
            end = middle
    return begin


def _tables(file: pa.parquet.ParquetFile, group: int, names: Sequence[str]) -> Iterator[pa.Table]:
    for batch in file.iter_batches(_SCAN_ROWS, row_groups=[group], columns=list(names), use_threads=False):
        yield pa.Table.from_batches([batch]).select(list(names))


class _Page:
    """Rows that are hashed and converted. It does not keep their row group in memory, as larger blocks do.

    Attributes:
        hashes: record hash of each row, shape ``[rows]``.
        nbytes: bytes in memory, strings estimated.
    """

    def __init__(self, table: pa.Table, columns: Sequence[Column], source: int, first: int) -> None:
        self.hashes = bind(row_hashes(table), source, first)
        self.columns = ColumnBatch.of(arrays(columns, table.column))
        self.nbytes = self.hashes.nbytes + self.columns.nbytes


class _Reader(FormatReader):
    def __init__(self, store: ObjectStore, columns: Sequence[Column]) -> None:
        self._store = store
        self._columns = columns
        self._names = [column.name for column in columns]
        self._files: dict[ObjectInfo, tuple[pa.parquet.ParquetFile, npt.NDArray[np.int64]]] = {}
        self._tables: OrderedDict[tuple[ObjectInfo, int], pa.Table] = OrderedDict()
        self._pages: OrderedDict[tuple[int, str, int], _Page] = OrderedDict()
        """By number and etag of their source, and their own number."""
        self._pages_bytes = 0

    def read(self, info: ObjectInfo, shard: Shard) -> RecordBlock:
        start, end, page = shard.start, shard.end, shard.start // PAGE_ROWS
        if 2 * (end - start) > PAGE_ROWS or (end - 1) // PAGE_ROWS != page:
            table = self._table(info, start, end)
            hashes = bind(row_hashes(table), shard.source, start)
            return RecordBlock(lines=None, hashes=hashes, parse=partial(self._converted, table))
        rows, first = self._page(info, shard.source, page), start - page * PAGE_ROWS
        hashes = rows.hashes[first : first + end - start]
        return RecordBlock(lines=None, hashes=hashes, parse=lambda: rows.columns, first=first)

    def has(self, info: ObjectInfo, shard: Shard) -> bool:
        page = shard.start // PAGE_ROWS
        return (shard.source, info.etag, page) in self._pages and (shard.end - 1) // PAGE_ROWS == page

    def _converted(self, table: pa.Table) -> ColumnBatch:
        return ColumnBatch.of(arrays(self._columns, table.column))

    def _page(self, info: ObjectInfo, source: int, number: int) -> _Page:
        key = (source, info.etag, number)
        page = self._pages.get(key)
        if page is None:
            first, end = number * PAGE_ROWS, int(self._file(info)[1][-1])
            table = self._table(info, first, min(first + PAGE_ROWS, end))
            page = self._pages[key] = _Page(table, self._columns, source, first)
            self._pages_bytes += page.nbytes
            while len(self._pages) > 1 and self._pages_bytes > PAGES_BYTES_MAX:
                self._pages_bytes -= self._pages.popitem(last=False)[1].nbytes
        self._pages.move_to_end(key)
        return page

    def _table(self, info: ObjectInfo, start: int, end: int) -> pa.Table:
        _, firsts = self._file(info)
        first = int(np.searchsorted(firsts, start, side="right")) - 1
        last = int(np.searchsorted(firsts, end, side="left"))
        parts = []
        for group in range(first, last):
            begin = max(start - int(firsts[group]), 0)
            stop = min(end, int(firsts[group + 1])) - int(firsts[group])
            parts.append(self._group(info, group).slice(begin, stop - begin))
        return pa.concat_tables(parts)

    def _file(self, info: ObjectInfo) -> tuple[pa.parquet.ParquetFile, npt.NDArray[np.int64]]:
        """A file, and the number of the first row of each of its row groups, and of its end."""
        if info not in self._files:
            file = _open(self._store, info)
            rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            self._files[info] = file, np.cumsum([0, *rows])
        return self._files[info]

    def _group(self, info: ObjectInfo, group: int) -> pa.Table:
        key = (info, group)
        if key not in self._tables:
            try:
                table = self._files[info][0].read_row_group(group, columns=self._names, use_threads=False)
                self._tables[key] = table.select(self._names)
            except (pa.ArrowException, OSError) as error:
                raise _damaged(info.uri, group, error) from error
            while len(self._tables) > 1 and sum(table.nbytes for table in self._tables.values()) > CACHE_BYTES_MAX:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        return self._tables[key]


def _damaged(uri: str, group: int, error: Exception) -> UserError:
    return UserError(
        f"{display(uri)}: row group {group} can't be read: {error}", hint="Write the file again, or copy it again."
    )


class _Parquet(DataFormat):
    name = "parquet"
    title = "Parquet"
    extensions = ("parquet",)
    without_gzip: Mapping[str, str] = {"parquet": "a Parquet file"}
    is_divisible = True
    position_shift = 0

    def begins(self, start: bytes) -> bool:
        return start.startswith(b"PAR1")

    def completed(self, store: ObjectStore, sources: Sequence[DataObject], options: ReaderOptions) -> ReaderOptions:
        if options.columns:
            return options
        return replace(options, column_order=tuple(_open(store, sources[0].info).schema_arrow.names))

    def scan(self, store: ObjectStore, data: DataObject, options: ReaderOptions) -> Scan:
        return _Scan(store, data.info, options)

    def divided(self, store: ObjectStore, info: ObjectInfo, range_bytes: int) -> list[int]:
        """The first row group of each range, and their number."""
        metadata = _open(store, info).metadata
        places, size = [0], 0
        for group in range(metadata.num_row_groups):
            if size >= range_bytes:
                places.append(group)
                size = 0
            row_group = metadata.row_group(group)
            size += sum(row_group.column(place).total_compressed_size for place in range(row_group.num_columns))
        return [*places, metadata.num_row_groups]

    def reader(self, store: ObjectStore, schema: DataSchema, index: Indices) -> FormatReader:
        return _Reader(store, schema.columns)


FORMAT = _Parquet()
