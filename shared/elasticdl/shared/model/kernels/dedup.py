"""The compiled loops of ``dedup``: import that module, this one imports numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.shared.model.kernels.mix64 import mix64

Function = TypeVar("Function", bound=Callable[..., Any])


def _kernel(returns: types.Type, *arguments: types.Type) -> Callable[[Function], Function]:
    return cast(Callable[[Function], Function], numba.njit(returns(*arguments), nogil=True, cache=True))


def _input(dtype: types.Type, dimensions: int) -> types.Type:
    return types.Array(dtype, dimensions, "C", readonly=True)


@_kernel(types.int64, _input(types.int64, 1), types.int32[::1], types.int64[::1], types.int32[::1])
def unique_inverse(
    ids: NDArray[np.int64], table: NDArray[np.int32], unique: NDArray[np.int64], inverse: NDArray[np.int32]
) -> int:
    """Fill ``unique`` and ``inverse``; ``table`` is zeroed, a power of two long and longer than ``ids``.

    A place of the table holds 1 + the position among the unique ids, so that every int64 is a legal id.
    """
    mask = table.size - 1
    found = 0
    for i in range(ids.size):
        place = np.int64(mix64(np.uint64(ids[i]))) & mask
        while table[place] != 0 and unique[table[place] - 1] != ids[i]:
            place = (place + 1) & mask
        if table[place] == 0:
            unique[found] = ids[i]
            found += 1
            table[place] = found
        inverse[i] = table[place] - 1
    return found


@_kernel(types.void, _input(types.int32, 1), _input(types.float32, 2), types.float32[:, ::1])
def sum_rows(inverse: NDArray[np.int32], gradients: NDArray[np.float32], sums: NDArray[np.float32]) -> None:
    """``sums[inverse[i]] += gradients[i]``."""
    for i in range(inverse.size):
        row = inverse[i]
        for column in range(gradients.shape[1]):
            sums[row, column] += gradients[i, column]


@_kernel(
    types.int64,
    _input(types.int32, 1),
    _input(types.float32, 2),
    types.int64,
    types.float32[:, ::1],
    types.float32[:, ::1],
    types.int32[::1],
    types.int64[::1],
)
def sum_parts(
    inverse: NDArray[np.int32],
    parts: NDArray[np.float32],
    power: int,
    sums: NDArray[np.float32],
    magnitudes: NDArray[np.float32],
    uses: NDArray[np.int32],
    repeated: NDArray[np.int64],
) -> int:
    """Sums of ``parts[i]`` and of their magnitudes in row ``inverse[i]``; returns how many rows have several parts.

    ``sums``, ``magnitudes`` and ``uses`` are zeroed. In the end ``repeated`` has these rows, and ``magnitudes`` begins
    with theirs.
    """
    width = parts.shape[1]
    for i in range(inverse.size):
        row = inverse[i]
        uses[row] += 1
        for column in range(width):
            part = parts[i, column]
            sums[row, column] += part
            magnitudes[row, column] += part * part if power == 2 else abs(part)
    found = 0
    for row in range(uses.size):
        if uses[row] > 1:
            repeated[found] = row
            for column in range(width):
                magnitudes[found, column] = magnitudes[row, column]
            found += 1
    return found
