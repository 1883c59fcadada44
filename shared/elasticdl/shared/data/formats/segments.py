"""Segments of records, which the scanners of all formats pass to the index builder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from elasticdl.shared.data.formats.gzip_content import content_size, open_content
from elasticdl.shared.data.hashing import Hashes
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display

Positions = npt.NDArray[np.int64]
_RETURN = 13
_LOOK_BACK_BYTES = 64 << 10
_NO_TEXT = (
    (b"\x1f\x8b", "compressed with gzip, but its name does not end with .gz", "Rename it."),
    (b"PK\x03\x04", "a zip archive", "Unpack it, and give the files in it: unzip"),
    (b"PAR1", "a Parquet file", "Give it the extension .parquet."),
    (b"BZh", "compressed with bzip2, which can't be read; gzip (.gz) can", "Decompress it first: bunzip2"),
    (b"\xfd7zXZ\0", "compressed with xz, which can't be read; gzip (.gz) can", "Decompress it first: unxz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd, which can't be read; gzip (.gz) can", "Decompress it first: unzstd"),
)
"""What a file of another kind begins with, what it is, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Some consecutive records of a source.

    Attributes:
        contents: content hash of each, shape ``[records]``.
        positions: where each begins, shape ``[records]``: a byte offset, in Parquet the number of the row group.
        end: the position behind the last of them.
    """

    contents: Hashes
    positions: Positions
    end: int


def chunks(stream: IO[bytes], size: Callable[[], int]) -> Iterator[tuple[bytes, bool]]:
    """The bytes of a stream in parts, each with whether it is the last one.

    Args:
        size: bytes to ask for next.
    """
    chunk = stream.read(size())
    while chunk:
        following = stream.read(size())
        yield chunk, not following
        chunk = following


def text_segments(
    store: ObjectStore,
    info: ObjectInfo,
    chunk_bytes: int,
    checked: Callable[[bytes], bytes],
    segment: Callable[[bytes, int, bool], tuple[Segment, int]],
) -> Iterator[Segment]:
    """The segments of a file of text, in order.

    Args:
        chunk_bytes: bytes to read at a time.
        checked: returns the first bytes of the file as they are to be cut, or refuses them.
        segment: cuts records from bytes: the bytes, where in the file they begin, and whether they are its last ones.
            Returns the records, and how many bytes they take.

    Raises:
        UserError: the file changes while it is read.
    """
    size, position, rest = content_size(info), 0, b""
    with open_content(store, info.uri) as stream:
        for chunk, final in chunks(stream, lambda: chunk_bytes):
            data = rest + (checked(chunk) if position == 0 and not rest else chunk)
            found, used = segment(data, position, final)
            yield found
            position += used
            rest = data[used:]
    check_unchanged(info.uri, size, position)


def part_of_text(
    store: ObjectStore,
    info: ObjectInfo,
    part: tuple[int, int, int | None],
    chunk_bytes: int,
    checked: Callable[[bytes], bytes],
    segment: Callable[[bytes, int, bool], tuple[Segment, int]],
) -> tuple[int, int, list[Segment]]:
    """The records of a file of text that end in a range, in the segments that ``text_segments`` has.

    Args:
        part: the range, which is a multiple of ``chunk_bytes``, and another one or the end of the file; and where the
            first of these records begins, at or before the range. None: behind the last line feed before the range.

    Returns:
        Where the first record begins, where the record behind the last begins, and the segments.

    Raises:
        UserError: the file has changed.
    """
    start, stop, begin = part
    if begin is None:
        begin = _line_before(store, info, start)
    segments, position = [], begin
    rest = store.read(info.uri, begin, start - begin, etag=info.etag) if begin < start else b""
    for place in range(start, stop, chunk_bytes):
        chunk = store.read(info.uri, place, min(chunk_bytes, stop - place), etag=info.etag)
        if place == 0:
            chunk = checked(chunk)
        found, used = segment(rest + chunk, position, place + chunk_bytes >= info.size_bytes)
        segments.append(found)
        rest = (rest + chunk)[used:]
        position += used
    if len(rest) + position != stop:
        raise UserError(f"{display(info.uri)} changed while it was being read")
    return begin, position, segments


def _line_before(store: ObjectStore, info: ObjectInfo, start: int) -> int:
    """Where the line begins that the byte before a position is in; the beginning of the file, if that is nearer."""
    end = start
    while end:
        begin = max(0, end - _LOOK_BACK_BYTES)
        place = store.read(info.uri, begin, end - begin, etag=info.etag).rfind(b"\n")
        if place >= 0:
            return begin + place + 1
        end = begin
    return 0


def check_unchanged(uri: str, size: int | None, end: int) -> None:
    """Refuse a file that had another end than when it was listed.

    Args:
        uri: URI of the file.
        size: bytes of its content; None: unknown, because it is compressed.
        end: bytes that were read.
    """
    if size not in (None, end):
        raise UserError(f"{display(uri)} changed while it was being read")


def cut_at(data: bytes, ends: Positions) -> tuple[list[bytes], Positions, int]:
    """Cut bytes into lines.

    Args:
        ends: where each line ends: the place of its line feed, or the end of the data.

    Returns:
        The lines that are not empty, without line breaks; where each begins; and how many bytes were used up.
    """
    if not ends.size:
        return [], np.empty(0, dtype=np.int64), 0
    raw = np.frombuffer(data, dtype=np.uint8)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1] + 1])
    stops = ends - ((ends > starts) & (raw[ends - 1] == _RETURN))
    full = stops > starts
    starts, stops = starts[full], stops[full]
    lines = [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return lines, starts, min(int(ends[-1]) + 1, len(data))


def refuse_no_text(uri: str, start: bytes) -> None:
    """Refuse a file of another kind under the name of a file of text.

    Args:
        uri: URI of the file.
        start: its first bytes.

    Raises:
        UserError: says what it is.
    """
    for magic, kind, hint in _NO_TEXT:
        if start.startswith(magic):
            raise UserError(f"{display(uri)} is {kind}", hint=hint)


def deleted(uri: str) -> UserError:
    """The error for data that was deleted after the job was planned."""
    return UserError(
        f"{display(uri)} was deleted after the job was planned",
        hint="Restore it and resume, or start a new job on the new data.",
    )


def changed(uri: str) -> UserError:
    """The error for data that changed after the job was planned."""
    return UserError(
        f"{display(uri)} changed since the job was planned",
        hint="Restore the old content and resume, or start a new job on the new data.",
    )
