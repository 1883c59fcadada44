"""Many positions of a ``Permutation`` at once, computed with NumPy, which the master's planning does not import."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elasticdl.shared.job.permutation import Permutation
from elasticdl.shared.model.mix64_arrays import mix64_array

_Words = npt.NDArray[np.uint64]


def take(order: Permutation | range, start: int, stop: int) -> range | npt.NDArray[np.int64]:
    """``[order[position] for position in range(start, stop)]``.

    Args:
        order: a permutation, or a range, of which a range is taken.
        start: first position.
        stop: the position after the last one.

    Returns:
        int64, shape ``[stop - start]``; a range of a range.

    Raises:
        IndexError: the positions are not all within the order.
    """
    size = len(order) if isinstance(order, range) else order.size
    if not 0 <= start <= stop <= size:
        raise IndexError(f"positions {start} to {stop} are not within {size}")
    if isinstance(order, range):
        return order[start:stop]
    values = _encrypt(order, np.arange(start, stop, dtype=np.uint64))
    outside = np.flatnonzero(values >= size)
    while outside.size:
        values[outside] = _encrypt(order, values[outside])
        outside = outside[values[outside] >= size]
    return values.astype(np.int64)


def _encrypt(permutation: Permutation, values: _Words) -> _Words:
    half_bits, half_mask = np.uint64(permutation.half_bits), np.uint64(permutation.half_mask)
    left, right = values >> half_bits, values & half_mask
    for key in permutation.keys:
        left, right = right, left ^ (mix64_array(right ^ np.uint64(key)) & half_mask)
    return (left << half_bits) | right
