"""Segments of records, which the scanners of all formats pass to the index builder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from elasticdl.shared.data.hashing import Hashes
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import display

Positions = npt.NDArray[np.int64]
_RETURN = 13


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
        stream: what to read.
        size: bytes to ask for next.
    """
    chunk = stream.read(size())
    while chunk:
        following = stream.read(size())
        yield chunk, not following
        chunk = following


def cut_at(data: bytes, ends: Positions) -> tuple[list[bytes], Positions, int]:
    """Cut bytes into lines.

    Args:
        data: the bytes.
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


def changed(uri: str) -> UserError:
    """The error for data that changed after the job was planned."""
    return UserError(
        f"{display(uri)} changed since the job was planned",
        hint="Restore the old content and resume, or start a new job on the new data.",
    )
