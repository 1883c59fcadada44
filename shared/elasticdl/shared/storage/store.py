"""The port of object storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from elasticdl.shared.errors import PermanentError

READ_AHEAD_BYTES = 1 << 20
"""Bytes that a stream returned by ``open`` may read ahead of its caller."""


class ObjectNotFoundError(PermanentError):
    """There is no object under that URI."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} does not exist")
        self.uri = uri


class ObjectChangedError(PermanentError):
    """An object has another etag than the one that was to be read."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} changed while it was being read")
        self.uri = uri


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One stored object; ``etag``: opaque value that changes with the content."""

    uri: str
    size_bytes: int
    etag: str


class ObjectStore(Protocol):
    """Objects named by URI, written whole and read in ranges.

    Every method may raise ``TransientError`` (after the adapter's own retries), ``PermanentError`` (no such bucket, no
    rights, disk full) or ``UserError`` (wrong credentials); those for one object ``ObjectNotFoundError``.
    """

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object whose URI begins with ``prefix`` (a plain string prefix, as in S3), in ascending order."""
        ...

    def info(self, uri: str) -> ObjectInfo:
        """Size and etag of one object."""
        ...

    def read(self, uri: str, start: int = 0, length: int | None = None, *, etag: str = "") -> bytes:
        """Bytes ``[start, start + length)``, fewer where the object ends; ``None`` reads to the end.

        Args:
            etag: that the object has to have; empty: any.

        Raises:
            ObjectChangedError: it has another etag.
        """
        ...

    def open(self, uri: str, start: int = 0) -> BinaryIO:
        """A stream of the bytes from ``start`` on, reading at most ``READ_AHEAD_BYTES`` ahead; close it."""
        ...

    def write(self, uri: str, data: bytes | memoryview | Path) -> ObjectInfo:
        """Create or replace an object, all or nothing, from memory or from a local file."""
        ...

    def create(self, uri: str, data: bytes) -> bool:
        """Create an object, all or nothing, unless there is one; of several processes, one succeeds.

        Returns:
            Whether it was created.
        """
        ...

    def delete(self, uri: str) -> None:
        """Delete an object; without effect if it does not exist."""
        ...

    def move(self, uri: str, target: str) -> None:
        """Give an object another name in the same store, replacing what is there."""
        ...
