"""Scans one large file by ranges, which several processes read at the same time. The result is that of one process.

Where a record begins is only known at the beginning of the file: a line feed may be inside a quoted CSV value, and
TFRecord has no marks between records. So each range is scanned from a guess, and counts only if it begins where the one
before has ended. From there the same bytes are read in the same way, so a right guess gives exactly the records of a
scan from the beginning. After a wrong guess, that range is scanned again from where the one before has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from elasticdl.shared.data.column_types import FoundColumn, absent_column
from elasticdl.shared.data.formats import FORMATS
from elasticdl.shared.data.formats.data_format import DataObject
from elasticdl.shared.data.formats.gzip_content import is_compressed
from elasticdl.shared.data.formats.segments import Segment
from elasticdl.shared.data.index import ScannedSource, indexed
from elasticdl.shared.data.schema import ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectStore

RANGE_BYTES = 64 << 20
"""Bytes of a range, a multiple of the bytes that the scanners of text read at a time."""
RANGES_MIN = 4
"""A smaller file is not divided: to start processes costs as much CPU time as to scan some 150 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """A part of a file.

    Attributes:
        start: byte offset, in Parquet the number of a row group. In text, records that end in the range belong to it,
            in TFRecord those that begin in it.
        begin: where its first record begins; None: it is guessed.
    """

    start: int
    stop: int
    begin: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """What one process scans: a group of files, or a range of a large file.

    Attributes:
        objects: some of a data set in their order, at least one.
        options: how to read them; can be pickled.
        part: what to scan of the only file; None: everything.
    """

    objects: tuple[DataObject, ...]
    numbers: Sequence[int]
    options: ReaderOptions
    part: FileRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRange:
    """The records of a range.

    Attributes:
        columns: what was found in them, with numbers of records from the beginning of the range.
        names: see ``Scan``.
    """

    begin: int
    end: int
    segments: tuple[Segment, ...]
    columns: tuple[FoundColumn, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(len(segment.contents) for segment in self.segments)


def divide(store: ObjectStore, data: DataObject, range_bytes: int = RANGE_BYTES) -> Sequence[FileRange]:
    """The ranges of a file, in order, of at least ``range_bytes``; only one if format or size allows no more."""
    data_format, size = FORMATS[data.format], data.info.size_bytes
    if not data_format.is_divisible or is_compressed(data.info.uri) or size < RANGES_MIN * range_bytes:
        return [FileRange(start=0, stop=size)]
    places = data_format.divided(store, data.info, range_bytes)
    return [FileRange(start=start, stop=stop) for start, stop in pairwise(places)]


def scan_range(store: ObjectStore, data: DataObject, options: ReaderOptions, part: FileRange) -> ScannedRange:
    """Scan a range.

    Raises:
        UserError: a record is wrong, or the range does not begin where it was guessed. The number of the record in the
            message counts from there.
    """
    scan = FORMATS[data.format].scan(store, data, options)
    begin, end, segments = scan.part(part.start, part.stop, part.begin)
    return ScannedRange(begin=begin, end=end, segments=tuple(segments), columns=scan.columns, names=scan.names)


def join(
    data: DataObject,
    number: int,
    options: ReaderOptions,
    parts: Iterable[tuple[FileRange, ScannedRange | UserError]],
    again: Callable[[FileRange], ScannedRange],
) -> ScannedSource | None:
    """Join the ranges of a file.

    Args:
        parts: its ranges in their order, with what was found in them.
        again: scans a range once more.

    Returns:
        What ``scan_source`` returns; None: a range could not be scanned, so only a scan from the beginning tells what
        is wrong, and with which record.
    """
    found: list[FoundColumn] = []
    names: list[tuple[str, ...]] = []
    records = 0

    def segments() -> Iterator[Segment]:
        nonlocal records
        end = 0
        for part, scanned in parts:
            if isinstance(scanned, UserError) or scanned.begin != end:
                scanned = again(replace(part, begin=end))  # noqa: PLW2901
            yield from scanned.segments
            found[:] = _joined(data, options, found, scanned, records)
            names.append(scanned.names)
            records, end = records + scanned.records, scanned.end

    try:
        return indexed(data, number, segments(), lambda: (tuple(found), names[0]))
    except UserError:
        return None


def _joined(
    data: DataObject, options: ReaderOptions, found: Sequence[FoundColumn], later: ScannedRange, records: int
) -> list[FoundColumn]:
    """The columns of the records before, and of a range that begins with record number ``records``."""
    more = {column.name: _moved(column, records) for column in later.columns}
    if not records:
        return list(more.values())
    if not later.records:
        return list(found)
    known = {column.name: column for column in found}
    joined = []
    for name in [*known, *(name for name in more if name not in known)]:
        one = known.get(name) or absent_column(name, 0, records)
        two = more.get(name) or absent_column(name, records, later.records)
        joined.append(FORMATS[data.format].with_more(one, two, options))
    return joined


def _moved(column: FoundColumn, records: int) -> FoundColumn:
    """A column whose numbers of records count from the beginning of the file."""
    places = {name: getattr(column, name) for name in ("first_missing", "first_inexact", "first_text")}
    return replace(column, **{name: place + records for name, place in places.items() if place >= 0})
