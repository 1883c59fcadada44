"""Writes the objects of a snapshot, one call per object, so that a caller decides what happens between two."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from elasticdl.shared.model.manifests import COPY_NAME, MANIFEST_NAME, Manifest, decode_manifest
from elasticdl.shared.storage import ObjectInfo, ObjectStore

COPY_WRITERS = 3
"""Objects of a copy that are written at a time: pushes wait for the last copy. No push waits for a snapshot."""

ObjectData = bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A snapshot that is complete on storage; ``size_bytes``: bytes of all its objects."""

    uri: str
    manifest: Manifest
    size_bytes: int


class SnapshotUpload:
    """The objects of one snapshot, serialised one at a time. Not thread-safe.

    Args:
        objects: URI and bytes of each object, the manifest last; see ``SnapshotWriter.objects``.
    """

    def __init__(self, objects: Iterator[tuple[str, ObjectData]], *, parallel: int = 1) -> None:
        self._objects = objects
        self.parallel = parallel
        self.written: Written | None = None
        """The snapshot, once its manifest was handed out."""
        self._size_bytes = 0

    def next_object(self) -> tuple[str, ObjectData]:
        """Serialise the next object; the last one, the manifest, sets ``written``. Then raises ``StopIteration``."""
        uri, data = next(self._objects)
        self._size_bytes += len(data)
        if uri.endswith((f"/{MANIFEST_NAME}", f"/{COPY_NAME}")):
            manifest = decode_manifest(bytes(data), uri)
            self.written = Written(uri=uri, manifest=manifest, size_bytes=self._size_bytes)
        return uri, data


class UploadWriter:
    """Writes uploads to a store, the manifest after every other object. Not thread-safe."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(COPY_WRITERS, thread_name_prefix="objects")
        self._writing: deque[Future[ObjectInfo]] = deque()

    def write_next(self, upload: SnapshotUpload) -> bool:
        """Write one object, or begin to write it where the upload allows several at a time.

        Returns:
            Whether more objects follow.

        Raises:
            TransientError, PermanentError: the store failed; what was written is garbage that nothing refers to.
        """
        try:
            uri, data = upload.next_object()
            while self._writing and (upload.written or len(self._writing) >= upload.parallel):
                self._writing.popleft().result()
            if upload.parallel > 1 and not upload.written:
                self._writing.append(self._pool.submit(self._store.write, uri, data))
            else:
                self._store.write(uri, data)
        except BaseException:
            wait(self._writing)
            self._writing.clear()
            raise
        return not upload.written

    def write(self, upload: SnapshotUpload) -> Written:
        """Write all objects; raises as ``write_next``."""
        while self.write_next(upload):
            pass
        assert upload.written is not None
        return upload.written

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
