"""Reads shards: exactly the records ``[start, end)`` of one source."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from elasticdl.shared.data.blocks import RecordBlock
from elasticdl.shared.data.formats import FORMATS
from elasticdl.shared.data.formats.gzip_content import is_compressed
from elasticdl.shared.data.formats.segments import changed, deleted
from elasticdl.shared.data.hashing import Hashes
from elasticdl.shared.data.index import SourceIndex
from elasticdl.shared.data.schema import DataSchema
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
        self._format = FORMATS[schema.format]
        self._files = self._format.reader(store, schema, self.index)

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
        if self._prefetch is None or not self._format.is_read_by_position:
            return
        ranges = []
        for shard in shards:
            uri = self._sources[shard.source].uri
            if not is_compressed(uri):
                _, begin, end = self.index(shard.source).around(shard.start, shard.end)
                ranges.append(StoredRange(uri, begin, end - begin))
        self._prefetch(ranges)

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
        for shard in shards:
            source = self._sources[shard.source]
            if not 0 <= shard.start < shard.end <= source.records:
                raise IndexError(f"{shard} is not within {source}")
        if len(shards) == 1:
            infos = {shards[0].source: self._unchanged(shards[0])}
        else:
            infos = {number: self._verified(number) for number in dict.fromkeys(shard.source for shard in shards)}
        return self._files.read_all([(infos[shard.source], shard) for shard in shards])

    def checksum(self, shard: Shard) -> int:
        """Sum of the record hashes of a range, from the index; reads at most its unaligned ends."""

        def hashes(start: int, end: int) -> Hashes:
            return self.read(Shard(source=shard.source, start=start, end=end)).hashes

        return self.index(shard.source).checksum(shard.start, shard.end, hashes)

    def index(self, number: int) -> SourceIndex:
        """The index of a source."""
        index = self._index(number)
        if index.source != self._sources[number] or index.number != number:
            raise changed(self._sources[number].uri)
        return index

    def _unchanged(self, shard: Shard) -> ObjectInfo:
        """A shard's source, which has not changed. While its rows are in memory, it is looked at once a second."""
        checked_s, info = self._checked.get(shard.source, (-math.inf, None))
        now_s = self.monotonic()
        if info is None or now_s - checked_s >= _RECHECK_S or not self._files.has(info, shard):
            info = self._verified(shard.source)
            self._checked.pop(shard.source, None)
            self._checked[shard.source] = now_s, info
            if len(self._checked) > _CHECKED_MAX:
                del self._checked[next(iter(self._checked))]
        return info

    def _verified(self, number: int) -> ObjectInfo:
        """A source, which is looked at now and has not changed."""
        source = self._sources[number]
        try:
            info = self._format.info(self._store, source)
        except ObjectNotFoundError as error:
            raise deleted(source.uri) from error
        if (info.size_bytes, info.etag) != (source.size_bytes, source.etag) and info not in self._same:
            if not self._is_same(number, info):
                raise changed(source.uri)
            self._same.add(info)
        return info
