"""Object storage that is away now and then, and that damages what it is told to damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elasticdl.shared.errors import TransientError
from elasticdl.shared.storage.memory_store import MemoryStore
from elasticdl.shared.storage.store import ObjectInfo, ObjectNotFoundError


class SimStore(MemoryStore):
    """All or nothing, as object stores promise."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 0
        """Outages under way."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._check()
        return super().list(prefix)

    def read(self, uri: str, start: int = 0, length: int | None = None) -> bytes:
        self._check()
        return super().read(uri, start, length)

    def write(self, uri: str, data: bytes | Path) -> ObjectInfo:
        self._check()
        assert isinstance(data, bytes)
        self._objects[uri] = data
        return ObjectInfo(uri=uri, size_bytes=len(data), etag="")

    def delete(self, uri: str) -> None:
        self._check()
        super().delete(uri)

    def damage(self, uri: str) -> None:
        """Flip a bit in the middle of an object."""
        try:
            data = bytearray(self._bytes(uri))
        except ObjectNotFoundError:
            return
        data[len(data) // 2] ^= 1
        self._objects[uri] = bytes(data)

    def _check(self) -> None:
        if self.away:
            raise TransientError("the store is away")
