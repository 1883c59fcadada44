"""Reads shards: exactly the records ``[start, end)`` of one source."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from elasticdl.shared.data.blocks import ColumnBatch, RecordBlock
from elasticdl.shared.data.discovery import source_info
from elasticdl.shared.data.formats import array_file, csv_file, image_folder, json_lines, parquet, recordio, tfrecord
from elasticdl.shared.data.formats.gzip_content import GzipContent, is_compressed
from elasticdl.shared.data.formats.segments import changed, deleted
from elasticdl.shared.data.hashing import Hashes, bind, content_hashes
from elasticdl.shared.data.index import SourceIndex
from elasticdl.shared.data.schema import DataFormat, DataSchema
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard, Source
from elasticdl.shared.storage import ObjectChangedError, ObjectInfo, ObjectNotFoundError, ObjectStore
from elasticdl.shared.storage.cache import StoredRange

_RECHECK_S = 1.0
"""Seconds after which a file is checked again for changes while its rows are in memory."""
_CHECKED_MAX = 256
"""Files of which the last check is remembered."""


class Reader:
    """Reads the sources of one plan; for one thread.

    Args:
        index: returns the index of a source by its number; called for each read.
        is_same: whether an object whose etag changed has the content of the source of a number; if not given, it has
            not.
        prefetch: begins to read ranges of stored objects; if not given, nothing is read ahead.

    Attributes:
        monotonic: returns the time in seconds, from any moment on.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        sources: Sequence[Source],
        schema: DataSchema,
        index: Callable[[int], SourceIndex],
        is_same: Callable[[int, ObjectInfo], bool] = lambda _number, _info: False,
        prefetch: Callable[[Sequence[StoredRange]], None] | None = None,
    ) -> None:
        self._store = store
        self._sources = sources
        self._schema = schema
        self._index = index
        self._is_same = is_same
        self._prefetch = prefetch
        self._same: set[ObjectInfo] = set()
        self.monotonic: Callable[[], float] = time.monotonic
        self._checked: dict[int, tuple[float, ObjectInfo]] = {}
        """When sources whose rows are in memory were last found unchanged; of the last ones that were checked."""
        self._gzip = GzipContent(store)
        self._typed: parquet.RowGroups | array_file.ArrayFiles | None = None
        if schema.format is DataFormat.PARQUET:
            self._typed = parquet.RowGroups(store, schema.columns)
        elif schema.format in array_file.FORMATS:
            self._typed = array_file.ArrayFiles(store, schema.format, schema.columns)

    @property
    def schema(self) -> DataSchema:
        """How the data is read."""
        return self._schema

    def read(self, shard: Shard) -> RecordBlock:
        """The records of a shard.

        Raises:
            UserError: the source changed since the job was planned, or its data is corrupt.
            IndexError: the shard is not within the source.
        """
        return self.read_all([shard])

    def prefetch(self, shards: Sequence[Shard]) -> None:
        """Begin to read shards whose places in their files the index tells, and return at once; any thread may call.

        Raises:
            TransientError: an index is needed, and storage is unreachable.
        """
        if self._prefetch is None or not self._schema.format.is_read_by_position:
            return
        ranges = []
        for shard in shards:
            uri = self._sources[shard.source].uri
            if not is_compressed(uri):
                _, begin, end = self.index(shard.source).around(shard.start, shard.end)
                ranges.append(StoredRange(uri, begin, end - begin))
        self._prefetch(ranges)

    def _read(self, shard: Shard, info: ObjectInfo) -> RecordBlock:
        self._check(shard)
        if self._typed is not None:
            rows = self._typed.read(info, shard)
            return RecordBlock(lines=None, hashes=rows.hashes, parse=lambda: rows.columns, first=rows.first)
        if self._schema.format is DataFormat.IMAGES:
            return self._images(shard)
        lines, hashes = self._lines(shard, info)
        raw = None if self._schema.format is DataFormat.JSON_LINES else lines
        return RecordBlock(lines=raw, hashes=hashes, parse=partial(self._parse, shard, lines))

    def read_all(self, shards: Sequence[Shard]) -> RecordBlock:
        """The records of several shards, at least one, one after the other; see ``read``."""
        if len(shards) > 1:
            self.prefetch(shards)  # One request after the other would wait for each.
        try:
            return self._read_all(shards)
        except ObjectChangedError:  # Since its etag was compared. It is compared again, and may have the same content.
            try:
                return self._read_all(shards)
            except ObjectChangedError as error:
                raise changed(error.uri) from error

    def _read_all(self, shards: Sequence[Shard]) -> RecordBlock:
        if len(shards) == 1:
            return self._read(shards[0], self._unchanged(shards[0]))
        infos = {number: self._verified(number) for number in dict.fromkeys(shard.source for shard in shards)}
        if self._schema.format not in (DataFormat.CSV, DataFormat.JSON_LINES):
            return RecordBlock.joined([self._read(shard, infos[shard.source]) for shard in shards])
        parts, hashes = [], []
        for shard in shards:
            self._check(shard)
            lines, own = self._lines(shard, infos[shard.source])
            parts.append(lines)
            hashes.append(own)
        lines = [line for part in parts for line in part]
        raw = None if self._schema.format is DataFormat.JSON_LINES else lines
        parse = partial(self._parse_all, shards, parts, lines)
        return RecordBlock(lines=raw, hashes=np.concatenate(hashes), parse=parse)

    def checksum(self, shard: Shard) -> int:
        """Sum of the record hashes of a range, from the index; reads at most its unaligned ends."""

        def hashes(start: int, end: int) -> Hashes:
            return self.read(Shard(source=shard.source, start=start, end=end)).hashes

        return self.index(shard.source).checksum(shard.start, shard.end, hashes)

    def index(self, number: int) -> SourceIndex:
        """The index of a source.

        Raises:
            UserError: the index belongs to other data.
        """
        index = self._index(number)
        if index.source != self._sources[number] or index.number != number:
            raise changed(self._sources[number].uri)
        return index

    def _check(self, shard: Shard) -> None:
        source = self._sources[shard.source]
        if not 0 <= shard.start < shard.end <= source.records:
            raise IndexError(f"{shard} is not within {source}")

    def _unchanged(self, shard: Shard) -> ObjectInfo:
        """A shard's source, which has not changed. While its rows are in memory, it is looked at once a second."""
        if not isinstance(self._typed, parquet.RowGroups):
            return self._verified(shard.source)
        checked_s, info = self._checked.get(shard.source, (-math.inf, None))
        now_s = self.monotonic()
        if info is None or now_s - checked_s >= _RECHECK_S or not self._typed.has(info, shard):
            info = self._verified(shard.source)
            self._checked.pop(shard.source, None)
            self._checked[shard.source] = now_s, info
            if len(self._checked) > _CHECKED_MAX:
                del self._checked[next(iter(self._checked))]
        return info

    def _verified(self, number: int) -> ObjectInfo:
        """A source, which is looked at now and has not changed."""
        source = self._sources[number]
        if self._schema.format is DataFormat.IMAGES:
            return ObjectInfo(uri=source.uri, size_bytes=source.size_bytes, etag=source.etag)
        try:
            info = source_info(self._store, source.uri, self._schema.format)
        except ObjectNotFoundError as error:
            raise deleted(source.uri) from error
        if (info.size_bytes, info.etag) != (source.size_bytes, source.etag) and info not in self._same:
            if not self._is_same(number, info):
                raise changed(source.uri)
            self._same.add(info)
        return info

    def _images(self, shard: Shard) -> RecordBlock:
        """Images, each compared with the index."""
        index, schema = self.index(shard.source), self._schema
        images = image_folder.read(
            self._store, index.source.uri, index.files[shard.start : shard.end], schema.columns, schema.class_names
        )
        hashes = bind(images.hashes, shard.source, shard.start)
        wrong = np.flatnonzero(hashes != np.diff(index.sums[shard.start : shard.end + 1]))
        if wrong.size:
            raise changed(images.uri(int(wrong[0])))
        return RecordBlock(lines=None, hashes=hashes, parse=lambda: images.columns)

    def _lines(self, shard: Shard, info: ObjectInfo) -> tuple[list[bytes], Hashes]:
        """The records of a shard and their hashes.

        The records between the marks around it are compared with the index: a file that was changed in place may have
        its old size and time.
        """
        uri, index = info.uri, self.index(shard.source)
        record, begin, end = index.around(shard.start, shard.end)
        if is_compressed(uri):
            data = self._gzip.read(uri, begin, end - begin)
        else:
            data = self._store.read(uri, begin, end - begin, etag=info.etag)
        if len(data) != end - begin:
            raise changed(uri)
        if self._schema.format is DataFormat.CSV:
            lines = csv_file.cut(data, final=True)[0]
        elif self._schema.format is DataFormat.JSON_LINES:
            lines = json_lines.cut(data, final=True)[0]
        elif self._schema.format is DataFormat.RECORDIO:
            chunks = recordio.ChunkDecoder(uri, record=record, position=begin).chunks(io.BytesIO(data))
            lines = [line for chunk in chunks for line in chunk]
        else:
            lines = tfrecord.records_in(data, uri, record, begin)
        hashes = bind(content_hashes(lines), shard.source, record)
        if not index.has_sum(record, hashes):
            raise changed(uri)
        wanted = slice(shard.start - record, shard.end - record)
        return lines[wanted], hashes[wanted]

    def _parse(self, shard: Shard, lines: list[bytes]) -> ColumnBatch:
        if not self._schema.format.has_columns:
            return ColumnBatch.of({})
        schema, uri = self._schema, self._sources[shard.source].uri
        types = {column.name: column.type for column in schema.columns}
        parser: csv_file.Parser | json_lines.Parser
        if schema.format is DataFormat.JSON_LINES:
            parser = json_lines.Parser(uri, types)
        else:
            parser = csv_file.Parser(uri, schema.file_columns, schema.csv_delimiter, types)
        return ColumnBatch.of(parser.arrays(lines, shard.start, schema.columns))

    def _parse_all(self, shards: Sequence[Shard], parts: Sequence[list[bytes]], lines: list[bytes]) -> ColumnBatch:
        """The columns of several shards: a call for each costs more than 500 records."""
        try:
            return self._parse(shards[0], lines)
        except UserError:  # It names a record of the first shard; the right one is named here.
            return ColumnBatch.joined([self._parse(shard, part) for shard, part in zip(shards, parts, strict=True)])
