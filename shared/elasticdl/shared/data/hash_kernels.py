"""The compiled loops of ``hashing``: import that module, this one imports numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.shared.model.kernels.mix64 import mix64

Function = TypeVar("Function", bound=Callable[..., Any])
_WORDS = types.Array(types.uint64, 1, "C", readonly=True)


def _kernel(returns: types.Type, *arguments: types.Type) -> Callable[[Function], Function]:
    return cast(Callable[[Function], Function], numba.njit(returns(*arguments), nogil=True, cache=True))


@_kernel(types.void, _WORDS, types.uint64[::1])
def mix(values: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """``out[i] = mix64(values[i])``."""
    for i in range(values.size):
        out[i] = mix64(values[i])


@_kernel(types.void, _WORDS, types.uint64, types.uint64, types.uint64[::1])
def bind(contents: NDArray[np.uint64], key: int, first: int, out: NDArray[np.uint64]) -> None:
    """``out[i] = mix64(contents[i] ^ mix64(key ^ (first + i)))``."""
    for i in range(contents.size):
        out[i] = mix64(contents[i] ^ mix64(key ^ (first + np.uint64(i))))


@_kernel(types.void, types.uint64[::1], _WORDS)
def fold(rows: NDArray[np.uint64], cells: NDArray[np.uint64]) -> None:
    """``rows[i] = mix64(rows[i] ^ cells[i])``."""
    for i in range(rows.size):
        rows[i] = mix64(rows[i] ^ cells[i])
