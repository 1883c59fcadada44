"""Reads shards through a user's reader; see ``elasticdl.shared.data.reader`` for those of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from elasticdl.shared.data.blocks import ColumnBatch, RecordBlock
from elasticdl.shared.data.custom.checked_reader import CheckedReader
from elasticdl.shared.data.custom.protocol import ShardRange
from elasticdl.shared.data.formats import FORMATS, json_lines
from elasticdl.shared.data.hashing import Hashes, add, bind, content_hashes, total
from elasticdl.shared.data.index import SourceIndex
from elasticdl.shared.data.schema import DataSchema
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard, Source


class CustomShardReader:
    """Reads the sources of one plan; for one thread at a time."""

    def __init__(
        self,
        reader: CheckedReader,
        *,
        sources: Sequence[Source],
        schema: DataSchema,
        index: Callable[[int], SourceIndex],
    ) -> None:
        self._reader = reader
        self._sources = sources
        self._schema = schema
        self._index = index

    @property
    def schema(self) -> DataSchema:
        """How the data is read."""
        return self._schema

    def read(self, shard: Shard) -> RecordBlock:
        """The records of a shard.

        Raises:
            UserError: the reader gives other records than when the job was planned, or not what it has to.
            IndexError: the shard is not within the source.
        """
        source = self._sources[shard.source]
        if not 0 <= shard.start < shard.end <= source.records:
            raise IndexError(f"{shard} is not within {source}")
        part = ShardRange.of_uri(source.uri).part(shard.start, shard.end)
        lines, has_columns = self._reader.read(part)
        hashes = bind(content_hashes(lines), shard.source, shard.start)
        if has_columns != FORMATS[self._schema.format].has_columns or not self._is_planned(shard, hashes):
            raise UserError(
                f"records {part.start} to {part.end - 1} of shard {part.name!r} are not those that the reader gave "
                "when the job was planned",
                hint="read_records() has to give the same records for a range each time. If the data has changed, "
                "start a new job.",
            )
        parse = partial(self._parse, source.uri, shard.start, lines)
        return RecordBlock(lines=None if has_columns else lines, hashes=hashes, parse=parse)

    def prefetch(self, shards: Sequence[Shard]) -> None:
        """The user's reader decides by itself what it reads ahead."""

    def read_all(self, shards: Sequence[Shard]) -> RecordBlock:
        """The records of several shards, at least one, one after the other; see ``read``."""
        return RecordBlock.joined([self.read(shard) for shard in shards])

    def _is_planned(self, shard: Shard, hashes: Hashes) -> bool:
        """Whether the records are those of the index, as far as it has marks within the shard."""
        index = self._index(shard.source)
        first = int(np.searchsorted(index.marks, shard.start, side="left"))
        last = int(np.searchsorted(index.marks, shard.end, side="right")) - 1
        if first >= last:
            return True
        inside = hashes[int(index.marks[first]) - shard.start : int(index.marks[last]) - shard.start]
        return total(inside) == add(int(index.sums[last]), -int(index.sums[first]))

    def _parse(self, uri: str, first: int, lines: list[bytes]) -> ColumnBatch:
        has_columns = FORMATS[self._schema.format].has_columns
        return ColumnBatch.of(json_lines.FORMAT.columns(uri, self._schema, lines, first) if has_columns else {})
