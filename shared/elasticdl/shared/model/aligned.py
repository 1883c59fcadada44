"""Arrays that begin at a cache line, which TensorFlow takes over without a copy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT_BYTES = 64
"""A cache line, and the alignment that TensorFlow's kernels rely on."""
ALIGNED_FLOATS = ALIGNMENT_BYTES // 4
"""float32 elements of a cache line."""


def aligned_empty(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An uninitialised C-contiguous array whose memory begins at a multiple of ``ALIGNMENT_BYTES``."""
    kind = np.dtype(dtype)
    size_bytes = kind.itemsize * (shape if isinstance(shape, int) else math.prod(shape))
    raw = np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8)
    return np.ndarray(shape, kind, raw, -address(raw) % ALIGNMENT_BYTES)


def aligned_floats(size: int) -> NDArray[np.float32]:
    """``aligned_empty`` for a number of float32."""
    return aligned_empty(size, np.float32)


def address(array: NDArray[Any]) -> int:
    """Where the array's memory begins; several times cheaper than ``array.ctypes.data``."""
    place: int = array.__array_interface__["data"][0]
    return place
