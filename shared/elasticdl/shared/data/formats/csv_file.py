"""CSV files: RFC 4180 with any one-character delimiter, UTF-8, quoted line breaks allowed, empty lines skipped.

A record's raw bytes are its line without the line break. Values are parsed by pyarrow; a missing number is NaN.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from elasticdl.shared.data.column_types import (
    EXACT_MAX,
    FoundColumn,
    arrow_type,
    exact_integers,
    selected,
    with_text_among_numbers,
)
from elasticdl.shared.data.formats import text
from elasticdl.shared.data.formats.arrow_columns import found
from elasticdl.shared.data.formats.data_format import DataObject, PositionFormat, Scan
from elasticdl.shared.data.formats.segments import Positions, Segment
from elasticdl.shared.data.formats.text import NEWLINE, RECORD_BYTES_MAX, TextParser, TextScan, cut_at, shown
from elasticdl.shared.data.ragged import Columns
from elasticdl.shared.data.schema import Column, DataSchema, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_QUOTE, _POINT = 34, 46
_ZERO = np.uint8(48)
_NOT_UTF8 = "it is not UTF-8 text"
_TO_UTF8 = "Convert the file to UTF-8, for example from Latin-1: iconv -f LATIN1 -t UTF-8 OLD.csv > NEW.csv"
_DELIMITERS = {";": "';'", "\t": "$'\\t'", "|": "'|'", ",": ","}
"""Usual delimiters, each as a shell takes it."""
_STRAY_QUOTE = "a quote is in the middle of a value, where quotes must be doubled and the whole value quoted"
_AFTER_QUOTE = (
    "a value begins with a quote, and text follows the quote that closes it, where only a delimiter or the end of the "
    "line can follow"
)
_ARROW_TYPES = {"string": pa.string()}


def cut(data: bytes, *, final: bool) -> tuple[list[bytes], Positions, int]:
    """Split bytes that begin with a record into records.

    Args:
        final: the bytes end the file, so the last record may lack its line break.

    Returns:
        The records without line breaks, where each begins, and how many bytes were used up. An unfinished last record
        is left over.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(raw == NEWLINE)
    quotes = np.flatnonzero(raw == _QUOTE)
    if quotes.size:
        ends = ends[np.searchsorted(quotes, ends) & 1 == 0]  # an odd number of quotes before: inside a quoted value
    used = int(ends[-1]) + 1 if ends.size else 0
    if final and used < len(data) and quotes.size % 2 == 0:
        ends = np.append(ends, len(data))
    return cut_at(data, ends)


def quote_error(data: bytes, delimiter: str) -> str:
    """What is wrong with the quotes of records; empty: ``cut`` and pyarrow see the same quoted values in them.

    For ``cut``, every second quote ends what the one before has begun. For pyarrow, a quote begins something only
    where a value begins.

    Args:
        data: whole records, separated by line feeds.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    quotes = np.flatnonzero(raw == _QUOTE)
    if not quotes.size:
        return ""
    if quotes.size % 2:
        return _STRAY_QUOTE
    outside = np.zeros(256, dtype=bool)
    outside[[NEWLINE, ord(delimiter)]] = True
    begins_value = (quotes == 0) | outside[raw[quotes - 1]]
    # A doubled quote stands for one: it ends nothing.
    is_doubled = quotes[1:-1:2] + 1 == quotes[2::2]
    first = np.concatenate([[0], 2 * np.flatnonzero(~is_doubled) + 2])
    last = np.append(first[1:] - 1, quotes.size - 1)
    is_quoted = begins_value[first]
    behind = quotes[last] + 1
    ends_value = (behind == len(data)) | outside[raw[np.minimum(behind, len(data) - 1)]]
    if np.any(is_quoted & ~ends_value):
        return _AFTER_QUOTE
    # Pairs of quotes inside a value that does not begin with one are a part of it.
    pairs = np.flatnonzero(~is_quoted)
    if pairs.size:
        lines = np.searchsorted(np.flatnonzero(raw == NEWLINE), quotes)
        values = np.concatenate([[0], np.cumsum(begins_value)])
        several = (lines[first] != lines[last]) | (values[first] != values[last + 1])
        if np.any(several[pairs]):
            return _STRAY_QUOTE
    return ""


class Parser(TextParser):
    """Turns records of one file into typed columns.

    Args:
        types: of columns, where they are not to be inferred.
        wanted: the columns to parse; those that have a type if not given.
    """

    def __init__(
        self, uri: str, names: Sequence[str], delimiter: str, types: Mapping[str, str], wanted: Sequence[str] = ()
    ) -> None:
        super().__init__(uri)
        self._names = list(names)
        self._wanted = list(wanted or types)
        self._types = types
        self._delimiter = delimiter

    def texts(self, lines: list[bytes], name: str) -> pa.ChunkedArray:
        """One column as text."""
        return Parser(self._uri, self._names, self._delimiter, {name: "string"})._parse(lines)[name]

    def _parse(self, lines: list[bytes]) -> pa.Table:
        data = b"\n".join(lines)
        if error := quote_error(data, self._delimiter):
            raise ValueError(error)
        table = pa.csv.read_csv(
            pa.BufferReader(data),
            read_options=pa.csv.ReadOptions(
                column_names=self._names, use_threads=False, block_size=min(len(data) + 2, RECORD_BYTES_MAX)
            ),
            parse_options=pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=b'"' in data),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: _ARROW_TYPES.get(kind) or arrow_type(kind) for name, kind in self._types.items()},
                include_columns=self._wanted,
                strings_can_be_null=False,
                true_values=[],
                false_values=[],
            ),
        )
        if table.num_rows != len(lines):
            raise ValueError(_STRAY_QUOTE)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_binary(column.type):
                raise ValueError(f"column {name!r} is not UTF-8 text")
        return table

    def _values(self, table: pa.Table, column: Column) -> pa.ChunkedArray:
        """With a given value in place of empty text; other types are filled later."""
        values = table[column.name]
        if column.type != "string" or column.fill is None:
            return values
        return pc.if_else(pc.equal(values, ""), column.fill, values)

    def _explain(
        self, lines: list[bytes], first: int, error: Exception, parse: Callable[[list[bytes]], object]
    ) -> UserError:
        """Find the first invalid record by bisection."""
        begin, end = 0, len(lines)
        while end - begin > 1:
            middle = (begin + end) // 2
            try:
                parse(lines[begin:middle])
                begin = middle
            except (pa.ArrowInvalid, ValueError) as part_error:
                end, error = middle, part_error
        line = lines[begin]
        try:
            parse([line])
        except (pa.ArrowInvalid, ValueError) as line_error:
            error = line_error
        reason = _reason(line, self._names, self._delimiter, error)
        if reason == _NOT_UTF8:
            hint = _TO_UTF8
        elif len(self._names) == 1 and (other := delimiter_hint(line.decode(), self._delimiter)):
            hint = other
        elif " is not " in reason:
            hint = "Correct or remove that record, or give the column another type: --column_types NAME=TYPE"
        else:
            hint = "Correct or remove that record."
        return UserError(
            f"{display(self._uri)}, record {first + begin} (from 0, header not counted): {reason}: {shown(line)}",
            hint=hint,
        )


def delimiter_hint(line: str, delimiter: str) -> str:
    """Which flag to give if another delimiter than the given one separates the columns of a line; else empty."""
    other = next((one for one in _DELIMITERS if one != delimiter and one in line), "")
    return f"If {_DELIMITERS[other]} separates the columns: --csv_delimiter={_DELIMITERS[other]}" if other else ""


def _reason(line: bytes, names: Sequence[str], delimiter: str, error: Exception) -> str:
    if wrong := quote_error(line, delimiter):
        return wrong
    try:
        rows = list(csv.reader([line.decode()], delimiter=delimiter))
    except UnicodeDecodeError:
        return _NOT_UTF8
    except csv.Error:
        return _STRAY_QUOTE
    if len(rows) == 1 and len(rows[0]) != len(names):
        present = len(rows[0])
        return f"it has {present} column{'' if present == 1 else 's'} instead of {len(names)}"
    # pyarrow names "CSV column #n" and rows of the block
    text = str(error).split("CSV conversion error to ")
    if len(text) == 2:
        column = text[0].split("#")[1].partition(":")[0]
        kind, _, value = text[1].partition(": invalid value ")
        return f"column {names[int(column)]!r} is not {kind}: {value}"
    return str(error)


class _Scan(TextScan):
    def __init__(self, store: ObjectStore, info: ObjectInfo, options: ReaderOptions) -> None:
        super().__init__(store, info)
        self._options = options
        self._wanted: tuple[str, ...] = ()
        self._found: list[FoundColumn] = []
        self._parser: Parser | None = None

    @property
    def columns(self) -> tuple[FoundColumn, ...]:
        """What was found in the columns that are read; ``null`` if a column has no value."""
        return tuple(self._found) or tuple(FoundColumn(name=name, type="null") for name in self._wanted)

    def part(self, start: int, stop: int, begin: int | None) -> tuple[int, int, list[Segment]]:
        if start:
            first = self._checked(self._store.read(self._info.uri, 0, text.CHUNK_BYTES, etag=self._info.etag))
            lines, starts, _ = cut(first, final=False)
            if not lines:
                raise self._error(f"its first record is longer than {text.CHUNK_BYTES >> 20} MiB")
            *_, self._parser = self._begin(lines, starts)
        return super().part(start, stop, begin)

    def _segment(self, data: bytes, position: int, final: bool) -> tuple[Segment, int]:
        segment, used = super()._segment(data, position, final)
        if final and used < len(data):
            raise self._error(f"the quote opened in record {self._records} (from 0) is never closed")
        return segment, used

    def _cut(self, data: bytes, *, final: bool) -> tuple[list[bytes], Positions, int]:
        return cut(data, final=final)

    def _refuse(self, chunk: bytes) -> None:
        if chunk.startswith(_UTF16):
            raise self._error(
                "it is UTF-16, not UTF-8 text", _TO_UTF8.replace("LATIN1", "UTF-16").replace("Latin-1", "UTF-16")
            )
        if b"\r" in chunk and b"\n" not in chunk:
            raise UserError(
                f"{display(self._info.uri)}: its lines end with a carriage return (CR) alone",
                hint=r"Replace them with line feeds: tr '\r' '\n' < FILE > NEW_FILE",
            )

    def _begin(self, lines: list[bytes], starts: Positions) -> tuple[list[bytes], Positions, Parser]:
        """Take the names from the header, or generate them for the columns of the first record."""
        delimiter = self._options.csv_delimiter
        try:
            first = next(csv.reader(lines[0].decode().splitlines(keepends=True), delimiter=delimiter))
        except UnicodeDecodeError as error:
            raise self._error("its first line is not UTF-8 text", _TO_UTF8) from error
        except csv.Error as error:
            raise self._error(f"its first line is not CSV separated by {delimiter!r}: {error}") from error
        if wrong := quote_error(lines[0], delimiter):
            raise self._error(f"{wrong}, in its first line: {shown(lines[0])}")
        header = self._options.csv_header
        names = [(name.strip() if header else "") or f"column_{number}" for number, name in enumerate(first)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise self._error(f"its header has two columns named {twice[0]!r}")
        self.names = tuple(names)
        self._wanted = selected(self._info.uri, names, self._options)
        types = {name: kind for name, kind in self._options.column_types.items() if name in self._wanted}
        parser = Parser(self._info.uri, names, delimiter, types, self._wanted)
        begin = 1 if header else 0
        return lines[begin:], starts[begin:], parser

    def _learn(self, data: bytes, lines: list[bytes], starts: Positions) -> tuple[list[bytes], Positions]:
        if self._parser is None:
            lines, starts, self._parser = self._begin(lines, starts)
        if not lines:
            return lines, starts
        table = self._parser.table(lines, self._records)
        self._may_have_zeros = _may_have_leading_zeros(data)
        self._may_have_hex = b"0x" in data or b"0X" in data
        given = self._options.column_types
        more = [
            found(name, given[name], "", table[name], self._records)
            if name in given
            else self._inferred(self._parser, lines, name, table[name])
            for name in self._wanted
        ]
        known = self._found or more
        if known is not more:
            more = [FORMAT.with_more(one, other, self._options) for one, other in zip(known, more, strict=True)]
        self._found = more
        return lines, starts

    def _inferred(self, parser: Parser, lines: list[bytes], name: str, values: pa.ChunkedArray) -> FoundColumn:
        kind = _inferred_type(values.type)
        column = found(name, kind, "", values, self._records)
        if pa.types.is_string(values.type):
            return with_text_among_numbers(column, values, self._records)
        if kind == "int64" and self._may_have_hex:
            column = replace(column, read_as=_read_as(parser.texts(lines, name), values, "(?i)0x"))
        if kind == "float64" and pc.any(pc.is_inf(values)).as_py():
            beyond = pc.if_else(pc.is_inf(values), parser.texts(lines, name), "")
            column = replace(column, read_as=_read_as(beyond, values, "[0-9]"))
        if kind == "int64" and self._may_have_zeros:
            zeros = pc.any(pc.match_substring_regex(parser.texts(lines, name), "^[+-]?0[0-9]")).as_py()
            return replace(column, leading_zeros=bool(zeros))
        if kind != "float64" or not _may_be_rounded(values):
            return column
        # Arrow infers floats for integers beyond 64 bits, and where some values have fractions.
        return exact_integers(column, parser.texts(lines, name), values.is_valid(), self._records)

    def _error(self, reason: str, hint: str = "Correct the file; CSV follows RFC 4180.") -> UserError:
        return UserError(f"{display(self._info.uri)}: {reason}", hint=hint)


def _may_have_leading_zeros(data: bytes) -> bool:
    """Whether a zero stands before a digit, and behind neither a digit nor a point."""
    raw = np.frombuffer(data, dtype=np.uint8)
    zeros = np.flatnonzero(raw[:-1] == _ZERO)
    before, after = raw[zeros - 1], raw[zeros + 1]
    is_first = (before - _ZERO > 9) & (before != _POINT)  # Unsigned: characters before "0" wrap around.
    return bool(np.any(is_first & (after - _ZERO <= 9)))


def _read_as(texts: pa.ChunkedArray, values: pa.ChunkedArray, pattern: str) -> str:
    """What the first text with a pattern is read as, in words; empty: there is none."""
    place = pc.index(pc.match_substring_regex(texts, pattern), True).as_py()
    return "" if place < 0 else f"{texts[place].as_py().strip()} is read as {values[place].as_py()}"


def _inferred_type(kind: pa.DataType) -> str:
    if pa.types.is_null(kind):
        return "null"
    if pa.types.is_integer(kind):
        return "int64"
    return "float64" if pa.types.is_floating(kind) else "string"


def _may_be_rounded(values: pa.ChunkedArray) -> bool:
    greatest = pc.max(pc.abs(values)).as_py()
    return greatest is not None and greatest >= EXACT_MAX


class _Csv(PositionFormat):
    name = "csv"
    title = "CSV"
    extensions = ("csv", "tsv")
    infers_types = True
    is_divisible = True

    def begins(self, start: bytes) -> bool:
        return bool(start) and b"\0" not in start and not start.startswith(b"\x1f\x8b")

    def scan(self, store: ObjectStore, data: DataObject, options: ReaderOptions) -> Scan:
        return _Scan(store, data.info, options)

    def with_more(self, column: FoundColumn, later: FoundColumn, options: ReaderOptions) -> FoundColumn:
        return column.with_more(later) if column.name in options.column_types else column.with_csv(later)

    def records(self, data: bytes, uri: str, record: int, position: int) -> list[bytes]:
        return cut(data, final=True)[0]

    def columns(self, uri: str, schema: DataSchema, records: list[bytes], first: int) -> Columns:
        types = {column.name: column.type for column in schema.columns}
        return Parser(uri, schema.file_columns, schema.csv_delimiter, types).arrays(records, first, schema.columns)


FORMAT = _Csv()
