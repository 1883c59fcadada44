"""The content of gzip files, and of deflated members of zip files: read from beginning to end, or from a position.

A gzip file can only be decompressed from its beginning, or from a place at which the state of the decompressor was
kept (``zlib`` can copy it, about 50 KB each). ``GzipContent`` keeps such states while it reads, so that later reads
begin near their position.
"""

from __future__ import annotations

import bisect
import gzip
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Protocol, Self, cast

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display

SUFFIX = ".gz"
STATES_MAX = 1024
"""Kept states of all files: about 50 MB."""
FILE_STATES_MAX = 256
"""Kept states of one file. Beyond it every second one is dropped, and the distance doubles."""
DISTANCE_BYTES = 2 << 20
"""Content between two kept states of a file, at first."""
_READ_BYTES = 32 << 10
_GZIP_FORMAT = 16 + zlib.MAX_WBITS


class _Decompressor(Protocol):
    """What ``zlib.decompressobj`` returns; its type has no public name."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...
    def copy(self) -> Self: ...


@dataclass(frozen=True, slots=True)
class _State:
    """A decompressor behind ``content`` bytes of content, which took ``compressed`` bytes of the file."""

    content: int
    compressed: int
    decompressor: _Decompressor


def is_compressed(uri: str) -> bool:
    """Whether an object is compressed with gzip, judging by its name."""
    return uri.endswith(SUFFIX)


def content_size(info: ObjectInfo) -> int | None:
    """Bytes of an object's content; None for a compressed one, of which only the end of the content tells."""
    return None if is_compressed(info.uri) else info.size_bytes


def open_content(store: ObjectStore, uri: str) -> IO[bytes]:
    """A stream of an object's content; close it."""
    stream = store.open(uri)
    return cast("IO[bytes]", _GzipStream(uri, stream)) if is_compressed(uri) else stream


def damaged(uri: str, error: Exception) -> UserError:
    """The error for a file that can't be decompressed."""
    return UserError(
        f"{display(uri)} is not a complete gzip file: {error}", hint="Write the file again, or copy it again."
    )


class _GzipStream(gzip.GzipFile):
    """Decompresses a stream, and closes it."""

    def __init__(self, uri: str, stream: IO[bytes]) -> None:
        super().__init__(fileobj=stream, mode="rb")
        self._uri = uri
        self._stream = stream

    def read(self, size: int | None = -1) -> bytes:
        try:
            return super().read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise damaged(self._uri, error) from error

    def close(self) -> None:
        super().close()
        self._stream.close()


@dataclass(slots=True)
class _Kept:
    """The kept states of one file, in ascending order."""

    states: list[_State]
    distance: int

    def nearest(self, position: int) -> _State:
        """The last state that is not behind a position of the content."""
        return self.states[bisect.bisect_right(self.states, position, key=lambda state: state.content) - 1]

    def keep(self, content: int, compressed: int, decompressor: _Decompressor) -> None:
        """Keep a copy of a state, unless there is one near or behind it."""
        if content < self.states[-1].content + self.distance:
            return
        if len(self.states) == FILE_STATES_MAX:
            del self.states[1::2]
            self.distance *= 2
        self.states.append(_State(content, compressed, decompressor.copy()))


class GzipContent:
    """Reads ranges of the content of gzip files; not safe to share between threads.

    Args:
        distance_bytes: content between two kept states of a file, at first.
    """

    def __init__(self, store: ObjectStore, *, distance_bytes: int = DISTANCE_BYTES) -> None:
        self._store = store
        self._distance = distance_bytes
        self._kept: OrderedDict[tuple[str, int | None], _Kept] = OrderedDict()

    def read(self, uri: str, start: int, length: int, *, deflated_at: int | None = None) -> bytes:
        """Bytes ``[start, start + length)`` of the content, fewer where it ends.

        Args:
            deflated_at: where in a zip file the content of a deflated member begins; None: it is a gzip file.
        """
        key = uri, deflated_at
        if key not in self._kept:
            first = zlib.decompressobj(_GZIP_FORMAT if deflated_at is None else -zlib.MAX_WBITS)
            self._kept[key] = _Kept([_State(0, deflated_at or 0, first)], self._distance)
        self._kept.move_to_end(key)
        end, parts = start + length, []
        try:
            for position, piece in self._pieces(uri, self._kept[key], start, has_members=deflated_at is None):
                parts.append(piece[max(start - position, 0) : max(end - position, 0)])
                if position + len(piece) >= end:
                    break
        except zlib.error as error:
            raise damaged(uri, error) from error
        while len(self._kept) > 1 and sum(len(kept.states) for kept in self._kept.values()) > STATES_MAX:
            self._kept.popitem(last=False)
        return b"".join(parts)

    def _pieces(self, uri: str, kept: _Kept, start: int, *, has_members: bool) -> Iterator[tuple[int, bytes]]:
        """The content from a state before ``start`` on, in pieces with the position of each."""
        state = kept.nearest(start)
        content, compressed, decompressor = state.content, state.compressed, state.decompressor.copy()
        with self._store.open(uri, compressed) as stream:
            while data := stream.read(_READ_BYTES):
                while data:
                    if decompressor.eof:
                        if not has_members:
                            return
                        compressed += len(data)
                        data = data.lstrip(b"\0")  # Zeros may fill a block before the next member.
                        compressed -= len(data)
                        if not data:
                            break
                        decompressor = zlib.decompressobj(_GZIP_FORMAT)
                    piece = decompressor.decompress(data)
                    rest = decompressor.unused_data
                    compressed += len(data) - len(rest)
                    data = rest
                    yield content, piece
                    content += len(piece)
                    if not decompressor.eof:
                        kept.keep(content, compressed, decompressor)
        if not decompressor.eof:
            raise zlib.error("its end is missing")
