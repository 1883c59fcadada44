"""Segments of records, which the scanners of all formats pass to the index builder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elasticdl.shared.data.hashing import Hashes
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectStore, display

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


def gather(store: ObjectStore, uri: str, begin: int, end: int) -> bytes:
    """The bytes ``[begin, end)``, all of them.

    Raises:
        UserError: the object has become shorter.
    """
    data = store.read(uri, begin, end - begin)
    if len(data) != end - begin:
        raise changed(uri)
    return data


def changed(uri: str) -> UserError:
    """The error for data that changed after the job was planned."""
    return UserError(
        f"{display(uri)} changed since the job was planned",
        hint="Restore the old content and resume, or start a new job on the new data.",
    )
