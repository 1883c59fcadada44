"""A stored object as a Python file, for libraries that read files."""

from __future__ import annotations

import io

from elasticdl.shared.storage import ObjectInfo, ObjectStore


class RangedFile(io.RawIOBase):
    """A seekable view of a stored object, read in ranges."""

    def __init__(self, store: ObjectStore, info: ObjectInfo) -> None:
        super().__init__()
        self._store = store
        self._info = info
        self._position = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position; returns it."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._info.size_bytes}[whence]
        if origin + offset < 0:
            raise OSError(f"position {origin + offset} is before the beginning")
        self._position = origin + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """The next bytes, fewer where the object ends. ``ObjectChangedError`` if its etag has changed."""
        length = None if size < 0 else size
        data = self._store.read(self._info.uri, self._position, length, etag=self._info.etag)
        self._position += len(data)
        return data

    def size(self) -> int:
        """Bytes of the object."""
        return self._info.size_bytes
