"""The index of a source: the positions of its records, and the sums of their hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from elasticdl.shared.data.column_types import FoundColumn, FoundSource
from elasticdl.shared.data.formats import FORMATS
from elasticdl.shared.data.formats.data_format import STRIDE_RECORDS, DataObject
from elasticdl.shared.data.formats.segments import Positions, Segment
from elasticdl.shared.data.hashing import Hashes, add, bind, total
from elasticdl.shared.data.schema import ReaderOptions
from elasticdl.shared.job.sources import Source
from elasticdl.shared.storage import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceIndex:
    """Marks ``0..m-1`` at record starts, the first at record 0, and a last one behind the last record.

    Attributes:
        number: the source's number in the plan; part of every record's hash.
        names: of all columns of a CSV file; of those that are read from Parquet and files of arrays; empty for other
            formats.
        marks: record number of each mark, ascending, shape ``[m + 1]``.
        positions: where that record begins: a byte offset, in RecordIO that of its chunk, in Parquet the number of its
            row group, in files of arrays and of a reader of the model file the number of the record; shape ``[m + 1]``.
        sums: sum of the hashes of all records before the mark modulo 2**64, shape ``[m + 1]``.
        files: of files in folders: the name of each record's file. Each record has a mark, and its position counts the
            bytes before it.
    """

    number: int
    source: Source
    names: tuple[str, ...]
    marks: Positions
    positions: Positions
    sums: Hashes
    files: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Checksum of the whole source."""
        return int(self.sums[-1])

    def has_content_of(self, other: SourceIndex) -> bool:
        """Whether both are of the same columns and records at the same places."""
        return self.names == other.names and all(
            np.array_equal(one, two)
            for one, two in ((self.marks, other.marks), (self.positions, other.positions), (self.sums, other.sums))
        )

    def around(self, start: int, end: int) -> tuple[int, int, int]:
        """The range to read for the records ``[start, end)``, ``start < end``.

        Returns:
            The record number of the last mark at or before ``start``, its position, and the position of the first mark
            at or after ``end``.
        """
        first = int(np.searchsorted(self.marks, start, side="right")) - 1
        last = int(np.searchsorted(self.marks, end, side="left"))
        # An empty source aside, the closing mark never begins a read.
        first = min(first, len(self.marks) - 2)
        return int(self.marks[first]), int(self.positions[first]), int(self.positions[last])

    def has_sum(self, first: int, hashes: Hashes) -> bool:
        """Whether records from one mark to another are those that were indexed."""
        begin, end = np.searchsorted(self.marks, [first, first + len(hashes)])
        ends = (first, first + len(hashes))
        is_marked = end < len(self.marks) and (self.marks[begin], self.marks[end]) == ends
        return bool(is_marked) and add(int(self.sums[end]), -int(self.sums[begin])) == total(hashes)

    def checksum(self, start: int, end: int, hashes: Callable[[int, int], Hashes]) -> int:
        """Sum of the hashes of the records ``[start, end)`` modulo 2**64.

        Args:
            hashes: the record hashes of a range; asked for less than one stride at either end that is not on a mark.
        """
        if not 0 <= start <= end <= self.source.records:
            raise IndexError(f"[{start}, {end}) is not within {self.source.records} records")
        return add(self._before(end, hashes), -self._before(start, hashes))

    def _before(self, record: int, hashes: Callable[[int, int], Hashes]) -> int:
        mark = int(np.searchsorted(self.marks, record, side="right")) - 1
        begin, known = int(self.marks[mark]), int(self.sums[mark])
        return known if begin == record else add(known, total(hashes(begin, record)))


@dataclass(slots=True)
class Marks:
    """Collects marks segment by segment.

    Attributes:
        position_shift: a mark also where a position, without this number of its last bits, differs from the one before.
        stride: records between two marks, at most.
    """

    number: int
    position_shift: int
    stride: int = STRIDE_RECORDS
    records: int = 0
    sum: int = 0
    end: int = 0
    _previous: int = -1
    _marks: list[Positions] = field(default_factory=list)
    _positions: list[Positions] = field(default_factory=list)
    _sums: list[Hashes] = field(default_factory=list)

    def take(self, segment: Segment) -> None:
        """Add the next records."""
        self.end = segment.end
        count = len(segment.contents)
        if not count:
            return
        hashes = bind(segment.contents, self.number, self.records)
        before = np.cumsum(hashes, dtype=np.uint64) - hashes + np.uint64(self.sum)
        indices = np.arange(self.records, self.records + count, dtype=np.int64)
        places = segment.positions >> self.position_shift
        moved = np.diff(places, prepend=np.int64(self._previous)) != 0
        chosen = moved | (indices % self.stride == 0)
        self._marks.append(indices[chosen])
        self._positions.append(segment.positions[chosen])
        self._sums.append(before[chosen])
        self.records += count
        self.sum = add(self.sum, total(hashes))
        self._previous = int(places[-1])

    def arrays(self) -> tuple[Positions, Positions, Hashes]:
        """Marks, positions and sums, closed."""
        return (
            np.concatenate([*self._marks, np.array([self.records], dtype=np.int64)]),
            np.concatenate([*self._positions, np.array([self.end], dtype=np.int64)]),
            np.concatenate([*self._sums, np.array([self.sum], dtype=np.uint64)]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedSource:
    """A source that was read from beginning to end; ``found``: its columns, without those that are not to be read."""

    index: SourceIndex
    found: FoundSource


def scan_source(store: ObjectStore, data: DataObject, number: int, options: ReaderOptions) -> ScannedSource:
    """Read a source once from beginning to end.

    Args:
        options: how to read it; ``csv_delimiter`` is given.

    Raises:
        UserError: the file is not what its format demands, or a value is not of a given type; names file, record and
            place.
    """
    scan = FORMATS[data.format].scan(store, data, options)
    return indexed(data, number, scan, lambda: (scan.columns, scan.names))


def indexed(
    data: DataObject,
    number: int,
    segments: Iterable[Segment],
    columns: Callable[[], tuple[tuple[FoundColumn, ...], tuple[str, ...]]],
) -> ScannedSource:
    """The index of a source.

    Args:
        columns: returns what was found in the columns, and the names of ``SourceIndex``; called after the last segment.
    """
    data_format = FORMATS[data.format]
    marks = Marks(number, data_format.position_shift, data_format.stride)
    for segment in segments:
        marks.take(segment)
    found, names = columns()
    records, positions, sums = marks.arrays()
    info = data.info
    source = Source(uri=info.uri, size_bytes=info.size_bytes, etag=info.etag, records=marks.records)
    index = SourceIndex(
        number=number,
        source=source,
        names=names,
        marks=records,
        positions=positions,
        sums=sums,
        files=data.files,
    )
    found_source = FoundSource(uri=info.uri, records=marks.records, columns=found)
    return ScannedSource(index=index, found=found_source)


def scan_sources(
    store: ObjectStore, objects: Sequence[DataObject], options: ReaderOptions, numbers: Sequence[int] | None = None
) -> Iterator[ScannedSource]:
    """Read sources of a data set, in their order; see ``scan_source``.

    Args:
        numbers: of each in the plan; None: they are all sources of the plan.
    """
    pairs = zip(objects, range(len(objects)) if numbers is None else numbers, strict=True)
    return (scan_source(store, data, number, options) for data, number in pairs)
