"""Files of text: CSV and JSON lines.

A record's raw bytes are its line without the line break; empty lines are skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from elasticdl.shared.data.formats import arrow_columns
from elasticdl.shared.data.formats.data_format import Scan
from elasticdl.shared.data.formats.gzip_content import content_size, open_content
from elasticdl.shared.data.formats.segments import Positions, Segment, check_unchanged, chunks
from elasticdl.shared.data.hashing import content_hashes
from elasticdl.shared.data.ragged import Columns
from elasticdl.shared.data.schema import Column
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display

RECORD_BYTES_MAX = 64 << 20
CHUNK_BYTES = 4 << 20
"""Bytes that are read at a time; ranges of a file are multiples of them."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NEWLINE = 10
_RETURN = 13
_LOOK_BACK_BYTES = 64 << 10
_NO_TEXT = (
    (b"\x1f\x8b", "compressed with gzip, but its name does not end with .gz", "Rename it."),
    (b"PK\x03\x04", "a zip archive", "Unpack it, and give the files in it: unzip"),
    (b"PAR1", "a Parquet file", "Give it the extension .parquet."),
    (b"BZh", "compressed with bzip2, which can't be read; gzip (.gz) can", "Decompress it first: bunzip2"),
    (b"\xfd7zXZ\0", "compressed with xz, which can't be read; gzip (.gz) can", "Decompress it first: unxz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd, which can't be read; gzip (.gz) can", "Decompress it first: unzstd"),
)
"""What a file of another kind begins with, what it is, and what to do."""
Parsed = TypeVar("Parsed")


class TextScan(Scan):
    """Every record of a file of text in order."""

    def __init__(self, store: ObjectStore, info: ObjectInfo) -> None:
        self._store = store
        self._info = info
        self._records = 0

    def __iter__(self) -> Iterator[Segment]:
        size, position, rest = content_size(self._info), 0, b""
        with open_content(self._store, self._info.uri) as stream:
            for chunk, final in chunks(stream, lambda: CHUNK_BYTES):
                data = rest + (self._checked(chunk) if position == 0 and not rest else chunk)
                found, used = self._segment(data, position, final)
                yield found
                position += used
                rest = data[used:]
        check_unchanged(self._info.uri, size, position)

    def part(self, start: int, stop: int, begin: int | None) -> tuple[int, int, list[Segment]]:
        """The records that end in a range, in the segments that the whole scan has.

        Args:
            start: a multiple of ``CHUNK_BYTES``.
            begin: where the first record begins; None: behind the last line feed before the range.
        """
        info = self._info
        if begin is None:
            begin = _line_before(self._store, info, start)
        segments, position = [], begin
        rest = self._store.read(info.uri, begin, start - begin, etag=info.etag) if begin < start else b""
        for place in range(start, stop, CHUNK_BYTES):
            chunk = self._store.read(info.uri, place, min(CHUNK_BYTES, stop - place), etag=info.etag)
            data = rest + (self._checked(chunk) if place == 0 else chunk)
            found, used = self._segment(data, position, place + CHUNK_BYTES >= info.size_bytes)
            segments.append(found)
            rest = data[used:]
            position += used
        check_unchanged(info.uri, stop, len(rest) + position)
        return begin, position, segments

    def _segment(self, data: bytes, position: int, final: bool) -> tuple[Segment, int]:
        """The next records, from bytes that begin with one at byte ``position``, and how many bytes they take."""
        lines, starts, used = self._cut(data, final=final)
        if len(data) - used > RECORD_BYTES_MAX:
            raise self._error(f"record {self._records} is longer than {RECORD_BYTES_MAX >> 20} MiB")
        if lines:
            lines, starts = self._learn(data, lines, starts)
        self._records += len(lines)
        return Segment(contents=content_hashes(lines), positions=starts + position, end=position + used), used

    def _checked(self, chunk: bytes) -> bytes:
        """The first bytes of the file, with line breaks in place of a byte order mark: positions stay byte offsets."""
        _refuse_no_text(self._info.uri, chunk)
        self._refuse(chunk)
        return b"\n\n\n" + chunk[3:] if chunk.startswith(BYTE_ORDER_MARK) else chunk

    @abstractmethod
    def _cut(self, data: bytes, *, final: bool) -> tuple[list[bytes], Positions, int]:
        """See ``csv_file.cut``."""

    @abstractmethod
    def _learn(self, data: bytes, lines: list[bytes], starts: Positions) -> tuple[list[bytes], Positions]:
        """Learn the columns from lines, at least one. Returns those that are records."""

    @abstractmethod
    def _refuse(self, chunk: bytes) -> None:
        """Refuse a file of text of another kind."""

    @abstractmethod
    def _error(self, reason: str) -> UserError: ...


class TextParser(ABC):
    """Turns records of one file into typed columns."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def table(self, lines: list[bytes], first: int) -> pa.Table:
        """Parse records, the first of which is number ``first``."""
        return self._explained(lines, first, self._parse)

    def arrays(self, lines: list[bytes], first: int, columns: Sequence[Column]) -> Columns:
        """Like ``table``, as numpy arrays of the columns' types."""

        def parse(some: list[bytes]) -> Columns:
            table = self._parse(some)
            return arrow_columns.arrays(columns, {each.name: self._values(table, each) for each in columns}.__getitem__)

        return self._explained(lines, first, parse)

    def _explained(self, lines: list[bytes], first: int, parse: Callable[[list[bytes]], Parsed]) -> Parsed:
        try:
            return parse(lines)
        except (pa.ArrowInvalid, ValueError) as error:
            raise self._explain(lines, first, error, parse) from error

    @abstractmethod
    def _parse(self, lines: list[bytes]) -> pa.Table: ...

    def _values(self, table: pa.Table, column: Column) -> pa.ChunkedArray:
        return table[column.name]

    @abstractmethod
    def _explain(
        self, lines: list[bytes], first: int, error: Exception, parse: Callable[[list[bytes]], object]
    ) -> UserError:
        """Find the first record that is wrong, by bisection."""


def shown(line: bytes) -> str:
    """The beginning of a record for messages."""
    text = line[:80].decode(errors="replace")
    return repr(text + "..." if len(line) > 80 else text)


def cut_at(data: bytes, ends: Positions) -> tuple[list[bytes], Positions, int]:
    """Cut bytes into lines.

    Args:
        ends: where each line ends: the place of its line feed, or the end of the data.

    Returns:
        The lines that are not empty, without line breaks; where each begins; and how many bytes were used up.
    """
    if not ends.size:
        return [], np.empty(0, dtype=np.int64), 0
    raw = np.frombuffer(data, dtype=np.uint8)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1] + 1])
    stops = ends - ((ends > starts) & (raw[ends - 1] == _RETURN))
    full = stops > starts
    starts, stops = starts[full], stops[full]
    lines = [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return lines, starts, min(int(ends[-1]) + 1, len(data))


def _refuse_no_text(uri: str, start: bytes) -> None:
    """Refuse a file of another kind under the name of a file of text."""
    for magic, kind, hint in _NO_TEXT:
        if start.startswith(magic):
            raise UserError(f"{display(uri)} is {kind}", hint=hint)


def _line_before(store: ObjectStore, info: ObjectInfo, start: int) -> int:
    """Where the line begins that the byte before a position is in; the beginning of the file, if that is nearer."""
    end = start
    while end:
        begin = max(0, end - _LOOK_BACK_BYTES)
        place = store.read(info.uri, begin, end - begin, etag=info.etag).rfind(b"\n")
        if place >= 0:
            return begin + place + 1
        end = begin
    return 0
