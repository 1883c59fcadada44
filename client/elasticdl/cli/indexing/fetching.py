"""Scans objects of a store while threads fetch the next ones: a request waits for the server most of its time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

from elasticdl.shared.data import FORMATS, DataObject, ReaderOptions, ScannedSource, scan_source, scan_sources
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.storage import MemoryStore, ObjectInfo, ObjectNotFoundError, ObjectStore, scheme_of

THREADS = 16
"""As many as there are connections to a store, and as ``for_each`` has."""
OBJECTS_MAX = 4 * THREADS
"""Objects that are being fetched, or wait to be scanned."""
OBJECT_BYTES_MAX = 4 << 20
"""A larger object is read by its scan, in parts: it takes longer to transfer than to request."""
BYTES_MAX = 16 << 20
"""Of all objects that are being fetched, or wait to be scanned."""


def scan_ahead(
    store: ObjectStore, objects: Sequence[DataObject], options: ReaderOptions, numbers: Sequence[int]
) -> Iterator[ScannedSource]:
    """Scan sources in their order, each as ``scan_source`` does. Nothing is fetched of local files."""
    if not objects or scheme_of(objects[0].info.uri) == "file":
        yield from scan_sources(store, objects, options, numbers)
        return
    fetchers = _Fetchers(store)
    try:
        for number, (data, fetched) in zip(numbers, _ahead(fetchers, objects), strict=True):
            yield scan_source(_holder(store, data, fetched), data, number, options)
    finally:
        fetchers.stop()


class FetchedObject(MemoryStore):
    """A store of one object, which has the size and the etag that it was listed with."""

    def __init__(self, info: ObjectInfo, content: bytes) -> None:
        super().__init__()
        self._info = info
        self.write(info.uri, content)

    def info(self, uri: str) -> ObjectInfo:
        """See ``ObjectStore.info``."""
        if uri != self._info.uri:
            raise ObjectNotFoundError(uri)
        return self._info


class _Fetchers:
    """Threads that read objects. Unlike those of a pool, they do not delay an interrupt while the store hangs."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._requests: SimpleQueue[tuple[ObjectInfo, Future[bytes]] | None] = SimpleQueue()
        self._is_stopped = False
        for _ in range(THREADS):
            threading.Thread(target=self._serve, name="fetch", daemon=True).start()

    def fetch(self, info: ObjectInfo) -> Future[bytes]:
        content: Future[bytes] = Future()
        self._requests.put((info, content))
        return content

    def stop(self) -> None:
        self._is_stopped = True
        for _ in range(THREADS):
            self._requests.put(None)

    def _serve(self) -> None:
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        """Serve a request; False: it says that there are no more. A thread that waits keeps no content in memory."""
        request = self._requests.get()
        if request is None:
            return False
        info, content = request
        if not self._is_stopped:
            try:
                content.set_result(self._store.read(info.uri, etag=info.etag))
            except BaseException as error:  # Raised where the result is taken.
                content.set_exception(error)
        return True


def _ahead(fetchers: _Fetchers, objects: Sequence[DataObject]) -> Iterator[tuple[DataObject, Future[bytes] | None]]:
    """The objects in their order, each with its content if it is fetched. The next ones are being fetched meanwhile."""
    waiting: deque[tuple[DataObject, int, Future[bytes] | None]] = deque()
    held = 0
    for data in objects:
        is_fetched = FORMATS[data.format].has_one_object and data.info.size_bytes <= OBJECT_BYTES_MAX
        size = data.info.size_bytes if is_fetched else 0
        while waiting and (len(waiting) >= OBJECTS_MAX or held + size > BYTES_MAX):
            taken, taken_bytes, fetched = waiting.popleft()
            yield taken, fetched
            held -= taken_bytes
        content = fetchers.fetch(data.info) if is_fetched else None
        waiting.append((data, size, content))
        held += size
    while waiting:
        data, _, fetched = waiting.popleft()
        yield data, fetched


def _holder(store: ObjectStore, data: DataObject, fetched: Future[bytes] | None) -> ObjectStore:
    """The store to scan an object in. After an error such as a changed object, the scan says what is wrong."""
    if fetched is None:
        return store
    try:
        return FetchedObject(data.info, fetched.result())
    except PermanentError:
        return store
