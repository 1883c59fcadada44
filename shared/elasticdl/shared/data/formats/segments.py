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
    """The bytes of a stream in parts, each with whether it is the last one."""
    chunk = stream.read(size())
    while chunk:
        following = stream.read(size())
        yield chunk, not following
        chunk = following


def check_unchanged(uri: str, size: int | None, end: int) -> None:
    """Refuse a file that had another end than when it was listed.

    Args:
        size: bytes of its content; None: unknown, because it is compressed.
        end: bytes that were read.
    """
    if size not in (None, end):
        raise UserError(f"{display(uri)} changed while it was being read")


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
