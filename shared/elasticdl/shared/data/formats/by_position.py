"""Formats in which a range of records is one range of bytes: the index of a source has their offsets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial

import numpy as np

from elasticdl.shared.data.blocks import ColumnBatch, RecordBlock
from elasticdl.shared.data.formats.data_format import DataFormat, FormatReader, Indices
from elasticdl.shared.data.formats.gzip_content import GzipContent, is_compressed
from elasticdl.shared.data.formats.segments import changed
from elasticdl.shared.data.hashing import Hashes, bind, content_hashes
from elasticdl.shared.data.ragged import Columns
from elasticdl.shared.data.schema import DataSchema
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import ObjectInfo, ObjectStore


class PositionFormat(DataFormat):
    """A format whose index has byte offsets.

    Attributes:
        feeds_bytes: the model's ``feed`` gets the bytes of records; otherwise their columns.
    """

    is_read_by_position = True
    feeds_bytes = True

    @abstractmethod
    def records(self, data: bytes, uri: str, record: int, position: int) -> list[bytes]:
        """The records in bytes that begin with record number ``record``, at a position, and end behind one.

        Raises:
            UserError: the file is damaged.
        """

    def columns(self, uri: str, schema: DataSchema, records: list[bytes], first: int) -> Columns:
        """The columns of records, the first of which is number ``first``.

        Raises:
            UserError: names the record that is wrong.
        """
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
