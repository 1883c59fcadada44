"""An object store that reads whole pages, ahead of their use where it is told to, and keeps them."""

from __future__ import annotations

import io
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.storage.cache.disk_cache import DiskCache
from elasticdl.shared.storage.cache.page_file import PAGE_BYTES
from elasticdl.shared.storage.store import READ_AHEAD_BYTES, ObjectChangedError, ObjectInfo, ObjectStore

MEMORY_BYTES_MAX = 64 << 20
"""Pages in memory: what was read ahead, and all pages that the disk has no room for."""
REQUEST_PAGES_MAX = 128
"""Pages of one request, 8 MiB. Longer ranges are several requests at a time."""
INFO_AGE_S = 60.0
"""Seconds for which size and etag of an object are not asked for again. Until then a changed object is not noticed
while its old pages are in the cache; any other read asks for the old etag."""
INFOS_MAX = 10_000
"""Objects whose size and etag are remembered. Those asked for longest ago are forgotten first."""
AHEAD_SHARE_MAX = 0.75
"""Share of the memory for pages that were read ahead, while the disk keeps none. The rest is for pages in use: several
reads often need the same one."""
_AHEAD_S = 300.0
"""Seconds after which a page that was read ahead no longer counts as needed: its task may be another worker's now."""
_REQUEST_THREADS = 16
_AHEAD_THREADS = 4
_STREAM_AHEAD_BYTES = 4 << 20

_PageKey = tuple[ObjectInfo, int]


@dataclass(frozen=True, slots=True)
class StoredRange:
    """Bytes ``[start, start + length)`` of an object."""

    uri: str
    start: int
    length: int


@dataclass(slots=True)
class _Needed:
    """The pages of a read by where they come from."""

    here: dict[int, bytes] = field(default_factory=dict)
    coming: dict[int, Future[bytes]] = field(default_factory=dict)
    requests: list[range] = field(default_factory=list)


class CachedStore:
    """Reads through a cache; safe to share between threads.

    Args:
        disk: keeps pages for later runs and for other processes; None: pages are only kept in memory.
        info_age_s: seconds for which size and etag of an object are not asked for again.
        infos_max: objects whose size and etag are remembered.
    """

    def __init__(
        self,
        store: ObjectStore,
        disk: DiskCache | None,
        usage: CacheUsage,
        *,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        info_age_s: float = INFO_AGE_S,
        infos_max: int = INFOS_MAX,
    ) -> None:
        self._store = store
        self._disk = disk
        self._usage = usage
        self._pages_max = max(1, memory_bytes_max // PAGE_BYTES)
        self._info_age_s = info_age_s
        self._ahead_max = max(1, int(self._pages_max * AHEAD_SHARE_MAX))
        self._infos_max = infos_max
        self._infos: OrderedDict[str, tuple[float, ObjectInfo]] = OrderedDict()
        self._pages: OrderedDict[_PageKey, bytes] = OrderedDict()
        self._coming: dict[_PageKey, Future[bytes]] = {}
        self._unread: OrderedDict[_PageKey, float] = OrderedDict()
        """When each page was requested that was read ahead, is not on disk and has not been needed yet."""
        self._lock = threading.Lock()
        # Reading ahead waits for requests, so it must not take their threads.
        self._requests = ThreadPoolExecutor(_REQUEST_THREADS, thread_name_prefix="requests")
        self._ahead = ThreadPoolExecutor(_AHEAD_THREADS, thread_name_prefix="read ahead")

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        return self._store.list(prefix)

    def info(self, uri: str) -> ObjectInfo:
        """See ``ObjectStore.info``; as it was up to ``info_age_s`` seconds ago."""
        asked_s, info = self._infos.get(uri, (0.0, None))
        if info is None or time.monotonic() - asked_s >= self._info_age_s:
            self._usage.add(requests=1)
            now_s, info = time.monotonic(), self._store.info(uri)
            with self._lock:
                self._infos.pop(uri, None)
                self._infos[uri] = now_s, info
                if len(self._infos) > self._infos_max:
                    self._infos.popitem(last=False)
        return info

    def read(self, uri: str, start: int = 0, length: int | None = None, *, etag: str = "") -> bytes:
        """See ``ObjectStore.read``."""
        if start == 0 and length is None and not etag and uri not in self._infos:
            # A whole object, such as an image, is one request, and its reader knows by itself whether it has changed.
            data = self._store.read(uri)
            self._usage.add(requests=1, fetched_bytes=len(data))
            return data
        info = self.info(uri)
        if etag not in ("", info.etag):
            raise self._changed(uri)
        end = info.size_bytes if length is None else min(start + length, info.size_bytes)
        return self._read(info, start, end) if start < end else b""

    def open(self, uri: str, start: int = 0) -> BinaryIO:
        """See ``ObjectStore.open``."""
        return io.BufferedReader(_Stream(self, self.info(uri), start), READ_AHEAD_BYTES)

    def write(self, uri: str, data: bytes | memoryview | Path) -> ObjectInfo:
        """See ``ObjectStore.write``."""
        self._infos.pop(uri, None)
        return self._store.write(uri, data)

    def create(self, uri: str, data: bytes) -> bool:
        """See ``ObjectStore.create``."""
        self._infos.pop(uri, None)
        return self._store.create(uri, data)

    def delete(self, uri: str) -> None:
        """See ``ObjectStore.delete``."""
        self._infos.pop(uri, None)
        self._store.delete(uri)

    def move(self, uri: str, target: str) -> None:
        """See ``ObjectStore.move``."""
        self._infos.pop(uri, None)
        self._infos.pop(target, None)
        self._store.move(uri, target)

    def prefetch(self, ranges: Iterable[StoredRange]) -> None:
        """Begin to read ranges, and return at once. What can't be read is an error only for the read that needs it.

        While the disk keeps no more pages, only as many are read ahead as the memory holds until they are needed.
        """
        for each in ranges:
            self._ahead.submit(self._prefetch, each)

    def _prefetch(self, wanted: StoredRange) -> None:
        try:
            info = self.info(wanted.uri)
            end = min(wanted.start + wanted.length, info.size_bytes)
            if wanted.start < end:
                self._begin(info, _pages_of(wanted.start, end), ahead=True)
        except ElasticDLError:
            return

    def _read(self, info: ObjectInfo, start: int, end: int) -> bytes:
        pages = _pages_of(start, end)
        needed = self._begin(info, pages)
        found = needed.here | {page: future.result() for page, future in needed.coming.items()}
        first, last = pages[0], pages[-1]
        if first == last:
            return found[first][start - first * PAGE_BYTES : end - first * PAGE_BYTES]
        head = memoryview(found[first])[start - first * PAGE_BYTES :]
        tail = memoryview(found[last])[: end - last * PAGE_BYTES]
        return b"".join([head, *(found[page] for page in pages[1:-1]), tail])

    def _begin(self, info: ObjectInfo, pages: Sequence[int], *, ahead: bool = False) -> _Needed:
        """Find pages, and begin to request those that are not there."""
        needed = self._known(info, pages, ahead=ahead)
        absent = [page for page in pages if page not in needed.here and page not in needed.coming]
        if absent and self._disk is not None:
            found = self._disk.read(info, absent)
            self._usage.add(cached_bytes=sum(map(len, found.values())))
            self._keep(info, found)
            needed.here |= found
            absent = [page for page in absent if page not in found]
        self._register(info, absent, needed, ahead=ahead)
        own = needed.requests.pop() if len(needed.requests) == 1 and not ahead else None
        for run in needed.requests:
            self._requests.submit(self._request, info, run)
        if own is not None:
            self._request(info, own)  # This thread would only wait.
        return needed

    def _known(self, info: ObjectInfo, pages: Sequence[int], *, ahead: bool) -> _Needed:
        needed = _Needed()
        with self._lock:
            for page in pages:
                key = info, page
                if not ahead:
                    self._unread.pop(key, None)
                if (data := self._pages.get(key)) is not None:
                    self._pages.move_to_end(key)
                    needed.here[page] = data
                elif (future := self._coming.get(key)) is not None:
                    needed.coming[page] = future
        return needed

    def _register(self, info: ObjectInfo, absent: Sequence[int], needed: _Needed, *, ahead: bool) -> None:
        """Divide absent pages into requests; other threads wait for the same ones from now on."""
        own: list[int] = []
        now_s = time.monotonic()
        with self._lock:
            for page in absent[: self._room_ahead(now_s)] if ahead else absent:
                key = info, page
                if (data := self._pages.get(key)) is not None:
                    needed.here[page] = data
                    continue
                if (future := self._coming.get(key)) is None:
                    future = self._coming[key] = Future()
                    own.append(page)
                    if ahead:
                        self._unread[key] = now_s
                elif not ahead:
                    self._unread.pop(key, None)
                needed.coming[page] = future
        begin = 0
        for place in range(1, len(own) + 1):
            ends = place == len(own) or own[place] != own[place - 1] + 1 or place - begin == REQUEST_PAGES_MAX
            if ends:
                needed.requests.append(range(own[begin], own[place - 1] + 1))
                begin = place

    def _room_ahead(self, now_s: float) -> int | None:
        """How many pages may be read ahead; None: any number, because the disk keeps them. The caller has the lock."""
        if self._disk is not None and not self._disk.is_full:
            return None
        while self._unread and now_s - next(iter(self._unread.values())) >= _AHEAD_S:
            self._unread.popitem(last=False)
        return max(0, self._ahead_max - len(self._unread))

    def _request(self, info: ObjectInfo, run: range) -> None:
        """Request consecutive pages; the threads that wait for them get the pages, or the error."""
        start, end = run.start * PAGE_BYTES, min(run.stop * PAGE_BYTES, info.size_bytes)
        try:
            self._usage.add(requests=1)
            data = self._store.read(info.uri, start, end - start, etag=info.etag)
            if len(data) != end - start:
                raise self._changed(info.uri)
        except BaseException as error:  # The threads that wait for these pages raise it.
            if isinstance(error, ObjectChangedError):
                self._infos.pop(info.uri, None)
            self._forget_unread(info, run)
            for future in self._taken(info, run):
                future.set_exception(error)
            return
        self._usage.add(fetched_bytes=len(data))
        found = {page: data[(page - run.start) * PAGE_BYTES : (page - run.start + 1) * PAGE_BYTES] for page in run}
        self._keep(info, found)
        for future, page in zip(self._taken(info, run), run, strict=True):
            future.set_result(found[page])
        if self._disk is not None and self._disk.write(info, found):
            self._forget_unread(info, run)

    def _taken(self, info: ObjectInfo, run: range) -> Sequence[Future[bytes]]:
        with self._lock:
            return [self._coming.pop((info, page)) for page in run]

    def _forget_unread(self, info: ObjectInfo, run: range) -> None:
        with self._lock:
            for page in run:
                self._unread.pop((info, page), None)

    def _keep(self, info: ObjectInfo, pages: dict[int, bytes]) -> None:
        """Add pages to those in memory. What was read ahead and is still needed is removed last."""
        with self._lock:
            for page, data in pages.items():
                self._pages[info, page] = data
                self._pages.move_to_end((info, page))
            excess = max(0, len(self._pages) - self._pages_max)
            for key in list(islice((key for key in self._pages if key not in self._unread), excess)):
                del self._pages[key]
            while len(self._pages) > self._pages_max:
                key, _ = self._pages.popitem(last=False)
                self._unread.pop(key, None)

    def _changed(self, uri: str) -> ObjectChangedError:
        self._infos.pop(uri, None)
        return ObjectChangedError(uri)


class _Stream(io.RawIOBase):
    """A stream of one object from a byte on, which reads ahead."""

    def __init__(self, store: CachedStore, info: ObjectInfo, start: int) -> None:
        super().__init__()
        self._info = info
        self._read: Callable[[int, int], bytes] = partial(store.read, info.uri, etag=info.etag)
        self._prefetch = store.prefetch
        self._position = start
        self._ahead = start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._read(self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        # Nothing is read ahead of the first read: many streams are left after it.
        if data and self._position < self._info.size_bytes and self._position + READ_AHEAD_BYTES > self._ahead:
            begin = max(self._position, self._ahead)
            self._prefetch([StoredRange(self._info.uri, begin, _STREAM_AHEAD_BYTES)])
            self._ahead = begin + _STREAM_AHEAD_BYTES
        return len(data)


def _pages_of(start: int, end: int) -> range:
    return range(start // PAGE_BYTES, -(-end // PAGE_BYTES))


class CacheUsage:
    """Sums since the start of the process; any thread may add and read.

    Attributes:
        requests: requests to object storage, those for etags too.
        fetched_bytes: bytes that object storage has sent.
        cached_bytes: bytes that the disk has given in their place.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.fetched_bytes = 0
        self.cached_bytes = 0
        self._lock = threading.Lock()

    def add(self, *, requests: int = 0, fetched_bytes: int = 0, cached_bytes: int = 0) -> None:
        """Count."""
        with self._lock:
            self.requests += requests
            self.fetched_bytes += fetched_bytes
            self.cached_bytes += cached_bytes
