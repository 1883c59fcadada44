"""The compiled loop of ``order``: import that module, this one imports numba."""

from __future__ import annotations

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.shared.model.kernels.mix64 import mix64


@numba.njit(
    types.void(types.uint64, types.uint64, types.uint64, types.int64, types.uint64, types.int64[::1]),
    nogil=True,
    cache=True,
)
def permute(size: int, half_bits: int, key: int, rounds: int, first: int, out: NDArray[np.int64]) -> None:
    """``out[i] = permutation[first + i]``; see ``Permutation`` for the network, the keys and the cycle walking."""
    one = np.uint64(1)
    half_mask = (one << half_bits) - one
    keys = np.empty(rounds, np.uint64)
    for number in range(rounds):
        keys[number] = mix64(mix64(np.uint64(key)) ^ np.uint64(number))
    for i in range(out.size):
        value = first + np.uint64(i)
        while True:
            left, right = value >> half_bits, value & half_mask
            for round_key in keys:
                left, right = right, left ^ (mix64(right ^ round_key) & half_mask)
            value = (left << half_bits) | right
            if value < size:
                break
        out[i] = np.int64(value)
