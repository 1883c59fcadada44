"""Objects in memory: the fake that tests and simulations use instead of a server."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from elasticdl.shared.storage.store import ObjectChangedError, ObjectInfo, ObjectNotFoundError


class MemoryStore:
    """A dictionary from URI to bytes; accepts any scheme."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._creating = threading.Lock()

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        return iter([self.info(uri) for uri in sorted(self._objects) if uri.startswith(prefix)])

    def info(self, uri: str) -> ObjectInfo:
        """See ``ObjectStore.info``."""
        data = self._bytes(uri)
        return ObjectInfo(uri=uri, size_bytes=len(data), etag=hashlib.sha256(data).hexdigest()[:32])

    def read(self, uri: str, start: int = 0, length: int | None = None, *, etag: str = "") -> bytes:
        """See ``ObjectStore.read``."""
        if etag and self.info(uri).etag != etag:
            raise ObjectChangedError(uri)
        data = self._bytes(uri)
        return data[start:] if length is None else data[start : start + length]

    def open(self, uri: str, start: int = 0) -> BinaryIO:
        """See ``ObjectStore.open``."""
        return io.BytesIO(self._bytes(uri)[start:])

    def write(self, uri: str, data: bytes | memoryview | Path) -> ObjectInfo:
        """See ``ObjectStore.write``."""
        self._objects[uri] = data.read_bytes() if isinstance(data, Path) else bytes(data)
        return self.info(uri)

    def create(self, uri: str, data: bytes) -> bool:
        """See ``ObjectStore.create``."""
        with self._creating:
            if uri in self._objects:
                return False
            self._objects[uri] = bytes(data)
        return True

    def delete(self, uri: str) -> None:
        """See ``ObjectStore.delete``."""
        self._objects.pop(uri, None)

    def move(self, uri: str, target: str) -> None:
        """See ``ObjectStore.move``."""
        self._objects[target] = self._bytes(uri)
        del self._objects[uri]

    def _bytes(self, uri: str) -> bytes:
        try:
            return self._objects[uri]
        except KeyError:
            raise ObjectNotFoundError(uri) from None
