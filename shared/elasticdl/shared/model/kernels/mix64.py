"""``mix64`` for compiled loops: the one definition that numba kernels of workers and ps call.

numba recompiles a cached kernel when the kernel's own file changes, not when this one does: empty the cache after a
change here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numba
import numpy as np

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def _mix64(value: np.uint64) -> np.uint64:
    """Splitmix64's finaliser: a bijection of 64-bit integers with good avalanche (Steele et al., 2014)."""
    value = value + _INCREMENT
    value = (value ^ (value >> np.uint64(30))) * _MULTIPLIER_1
    value = (value ^ (value >> np.uint64(27))) * _MULTIPLIER_2
    return value ^ (value >> np.uint64(31))


mix64 = cast(Callable[[np.uint64], np.uint64], numba.njit(_mix64, nogil=True, error_model="numpy"))
"""Compiled as a part of the kernels that call it."""
