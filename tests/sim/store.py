"""Object storage that is away now and then, and that damages what it is told to damage."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from elasticdl.shared.errors import TransientError
from elasticdl.shared.model.manifests import Manifest, decode_manifest
from elasticdl.shared.storage.memory_store import MemoryStore
from elasticdl.shared.storage.store import ObjectInfo


class SimStore(MemoryStore):
    """All or nothing, as object stores promise."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 0
        """Outages under way."""
        self._whole: dict[str, bytes] = {}
        """What damaged objects were."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._check()
        return super().list(prefix)

    def read(self, uri: str, start: int = 0, length: int | None = None, *, etag: str = "") -> bytes:
        self._check()
        return super().read(uri, start, length, etag=etag)

    def write(self, uri: str, data: bytes | memoryview | Path) -> ObjectInfo:
        self._check()
        assert not isinstance(data, Path)
        self._objects[uri] = bytes(data)
        self._whole.pop(uri, None)
        return ObjectInfo(uri=uri, size_bytes=len(data), etag="")

    def delete(self, uri: str) -> None:
        self._check()
        super().delete(uri)
        self._whole.pop(uri, None)

    def move(self, uri: str, target: str) -> None:
        self._check()
        super().move(uri, target)
        self._whole.pop(uri, None)

    def damage(self, uri: str, how: int) -> None:
        """Lose an object, its end, or one of its bits: a high one of a 32-bit number, so that its value differs."""
        data = self._objects.get(uri)
        if not data:
            return
        self._whole.setdefault(uri, data)
        if how == 0:
            del self._objects[uri]
        elif how == 1:
            self._objects[uri] = data[:-1]
        else:
            place = min(len(data) // 2 | 3, len(data) - 1)
            self._objects[uri] = data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]

    def chain(self, uri: str) -> Sequence[tuple[str, Manifest]]:
        """What is whole of a snapshot's chain, the oldest first, whether the store is away or not."""
        found: deque[tuple[str, Manifest]] = deque()
        while uri in self._objects and uri not in self._whole:
            found.appendleft((uri, decode_manifest(self._objects[uri], uri)))
            uri = found[0][1].base
        return found

    def heal(self) -> None:
        """Everything is as it was written: the judge counts what a ps has saved, not what became of it."""
        self.away = 0
        self._objects.update(self._whole)
        self._whole.clear()

    def _check(self) -> None:
        if self.away:
            raise TransientError("the store is away")
