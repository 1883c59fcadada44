"""What a format of data is: an object that says how its files are found, indexed and read."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from elasticdl.shared.data.blocks import ColumnBatch, RecordBlock
from elasticdl.shared.data.column_types import FoundColumn, element_type
from elasticdl.shared.data.formats.gzip_content import SUFFIX, GzipContent, is_compressed
from elasticdl.shared.data.formats.segments import Segment, changed
from elasticdl.shared.data.hashing import Hashes, bind, content_hashes
from elasticdl.shared.data.ragged import Columns
from elasticdl.shared.data.schema import DataSchema, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard, Source
from elasticdl.shared.storage import ObjectInfo, ObjectStore

if TYPE_CHECKING:
    from elasticdl.shared.data.index import SourceIndex  # It imports the formats.

Indices = Callable[[int], "SourceIndex"]
"""Returns the index of a source by its number."""
STRIDE_RECORDS = 256
"""Most records between two marks. A mark takes 24 bytes; a read decodes at most so many records more than needed."""
STRIDE_BYTES_LOG2 = 20
"""A mark also at each record that begins in another MiB than the one before, for large records."""
_EXTENSION = re.compile(r"\.([A-Za-z][A-Za-z0-9]*)(-\d+-of-\d+)?$")


def extension_of(uri: str) -> str:
    """The extension of a file, in lower case and without that of gzip; empty: it has none."""
    found = _EXTENSION.search(uri.removesuffix(SUFFIX))
    return found[1].lower() if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataObject:
    """One object of a data set.

    Attributes:
        files: of files in folders, which are one object together: their names below the common folder.
    """

    info: ObjectInfo
    format: str
    files: tuple[str, ...] = ()

    @property
    def delimiter(self) -> str:
        """What separates columns of CSV, judging by the name."""
        return "\t" if extension_of(self.info.uri) == "tsv" else ","

    @property
    def name_of_format(self) -> str:
        """The format, with tab-separated CSV apart."""
        return "tsv" if self.delimiter == "\t" else self.format


class Scan(ABC):
    """Reads a source from beginning to end.

    Attributes:
        names: of all columns of a CSV file; of those that are read from Parquet and files of arrays; empty for other
            formats. Complete once the scan was iterated.
    """

    names: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[FoundColumn, ...]:
        """What was found in the columns that are read; complete once the scan was iterated to the end."""
        return ()

    @abstractmethod
    def __iter__(self) -> Iterator[Segment]:
        """Segments of records.

        Raises:
            UserError: the file is damaged, or a value is wrong; names the file and the record.
        """

    def part(self, start: int, stop: int, begin: int | None) -> tuple[int, int, list[Segment]]:
        """Scan a range of a file whose format is divisible.

        Args:
            start: byte offset, or what ``DataFormat.divided`` counts.
            begin: where the first record begins; None: it is guessed.

        Returns:
            Where the first record begins, where the record behind the last begins, and the records.

        Raises:
            UserError: see ``__iter__``; records are counted from the first one of the range.
        """
        raise NotImplementedError


class FormatReader(ABC):
    """Reads ranges of records of one data set's files; not safe to share between threads."""

    @abstractmethod
    def read(self, info: ObjectInfo, shard: Shard) -> RecordBlock:
        """The records of a shard, which is a part of a source.

        Raises:
            UserError: the source is damaged, or has other records than its index.
        """

    def read_all(self, shards: Sequence[tuple[ObjectInfo, Shard]]) -> RecordBlock:
        """The records of several shards, at least one, one after the other."""
        return RecordBlock.joined([self.read(info, shard) for info, shard in shards])

    def has(self, info: ObjectInfo, shard: Shard) -> bool:
        """Whether the records of a shard are in memory."""
        return False


class DataFormat(ABC):
    """A format of data. It has no state, so one object serves all files.

    Attributes:
        name: in specifications and indices, so it never changes.
        title: in messages, help texts and the documentation.
        extensions: of its files, in lower case.
        without_gzip: extension -> what such a file is, where the format has its own compression.
        has_columns: records have columns; others are bytes that the model's feed parses.
        infers_types: values are text. Their types are inferred, or the model's feed parses the lines.
        records_are_files: a source is a list of files. Nothing but reading them tells whether one has changed, so each
            record has a mark.
        is_read_by_position: the index has byte offsets: a range of records is one range of bytes.
        position_shift: the index has a mark also where a position, without so many of its last bits, differs from the
            one before.
        stride: records between two marks, at most.
    """

    name: str
    title: str
    extensions: tuple[str, ...] = ()
    without_gzip: Mapping[str, str] = MappingProxyType({})
    has_columns = True
    infers_types = False
    may_lack_columns = False
    has_one_object = True
    records_are_files = False
    is_read_by_position = False
    is_divisible = False
    position_shift = STRIDE_BYTES_LOG2
    stride = STRIDE_RECORDS

    def begins(self, start: bytes) -> bool:
        """Whether a file without an extension is of this format, judging by its first bytes."""
        return False

    def sources(self, store: ObjectStore, files: list[DataObject]) -> list[DataObject]:
        """The sources of a data set: its files, or what they are together."""
        return files

    def info(self, store: ObjectStore, source: Source) -> ObjectInfo:
        """Size and etag of a source, perhaps of several objects, as it is now. Raises ``ObjectNotFoundError``."""
        return store.info(source.uri)

    def completed(self, store: ObjectStore, sources: Sequence[DataObject], options: ReaderOptions) -> ReaderOptions:
        """Options with what the files together say about the columns."""
        return options

    @abstractmethod
    def scan(self, store: ObjectStore, data: DataObject, options: ReaderOptions) -> Scan:
        """Scan a source. Raises ``UserError``: the file is damaged, or has a column that can't be read."""

    def divided(self, store: ObjectStore, info: ObjectInfo, range_bytes: int) -> list[int]:
        """Divide a file into ranges of about so many bytes: where each begins, and the end of the file."""
        return [*range(0, info.size_bytes - range_bytes + 1, range_bytes), info.size_bytes]

    def with_more(self, column: FoundColumn, later: FoundColumn, options: ReaderOptions) -> FoundColumn:
        """A column of one range of a file, and of the next."""
        return column.with_more(later)

    def tolerant_type(self, kind: str) -> str:
        """A type that holds what a column of this type may have, although its values are wrong; empty: there is none.

        ``elasticdl data inspect`` shows such columns.
        """
        return kind.replace(element_type(kind), "string", 1)

    @abstractmethod
    def reader(self, store: ObjectStore, schema: DataSchema, index: Indices) -> FormatReader:
        """Read records of a data set."""


class PositionFormat(DataFormat):
    """A format whose index has byte offsets; ``feeds_bytes``: the model's ``feed`` gets bytes, otherwise columns."""

    is_read_by_position = True
    feeds_bytes = True

    @abstractmethod
    def records(self, data: bytes, uri: str, record: int, position: int) -> list[bytes]:
        """The records in bytes that begin with record number ``record``, at a position.

        They end where another record begins, or the file ends: what separates records is in them.
        """

    def columns(self, uri: str, schema: DataSchema, records: list[bytes], first: int) -> Columns:
        """The columns of records, the first of which is number ``first``."""
        return {}

    def reader(self, store: ObjectStore, schema: DataSchema, index: Indices) -> FormatReader:
        """See ``DataFormat``."""
        return _Reader(self, store, schema, index)


class _Reader(FormatReader):
    def __init__(self, data_format: PositionFormat, store: ObjectStore, schema: DataSchema, index: Indices) -> None:
        self._format = data_format
        self._store = store
        self._schema = schema
        self._index = index
        self._gzip = GzipContent(store)

    def read(self, info: ObjectInfo, shard: Shard) -> RecordBlock:
        return self.read_all([(info, shard)])

    def read_all(self, shards: Sequence[tuple[ObjectInfo, Shard]]) -> RecordBlock:
        parts, hashes = [], []
        for info, shard in shards:
            lines, own = self._lines(info, shard)
            parts.append(lines)
            hashes.append(own)
        lines = parts[0] if len(parts) == 1 else [line for part in parts for line in part]
        raw = lines if self._format.feeds_bytes else None
        parse = partial(self._parse_all, shards, parts, lines)
        return RecordBlock(lines=raw, hashes=np.concatenate(hashes), parse=parse)

    def _lines(self, info: ObjectInfo, shard: Shard) -> tuple[list[bytes], Hashes]:
        """The records of a shard and their hashes.

        The records between the marks around it are compared with the index: a file that was changed in place may have
        its old size and time.
        """
        uri, index = info.uri, self._index(shard.source)
        record, begin, end = index.around(shard.start, shard.end)
        if is_compressed(uri):
            data = self._gzip.read(uri, begin, end - begin)
        else:
            data = self._store.read(uri, begin, end - begin, etag=info.etag)
        if len(data) != end - begin:
            raise changed(uri)
        lines = self._format.records(data, uri, record, begin)
        hashes = bind(content_hashes(lines), shard.source, record)
        if not index.has_sum(record, hashes):
            raise changed(uri)
        wanted = slice(shard.start - record, shard.end - record)
        return lines[wanted], hashes[wanted]

    def _parse(self, info: ObjectInfo, shard: Shard, lines: list[bytes]) -> ColumnBatch:
        return ColumnBatch.of(self._format.columns(info.uri, self._schema, lines, shard.start))

    def _parse_all(
        self, shards: Sequence[tuple[ObjectInfo, Shard]], parts: Sequence[list[bytes]], lines: list[bytes]
    ) -> ColumnBatch:
        """The columns of several shards: a call for each costs more than 500 records."""
        try:
            return self._parse(*shards[0], lines)
        except UserError:  # It names a record of the first shard; the right one is named here.
            if len(shards) == 1:
                raise
            return ColumnBatch.joined([self._parse(*each, part) for each, part in zip(shards, parts, strict=True)])
