"""The compiled loops of the ring: import this only where gradients are added up, it imports numba."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.shared.model.kernels.compiled import DOUBLES, DOUBLES_OUT, FLOATS, FLOATS_OUT, kernel


def _add(target: NDArray[Any], values: NDArray[Any]) -> None:
    for i in range(values.size):
        target[i] += values[i]


def _scale_floats(target: NDArray[np.float32], factor: float, values: NDArray[np.float32]) -> None:
    scale = np.float32(factor)
    for i in range(values.size):
        target[i] = scale * values[i]


def _add_scaled_floats(target: NDArray[np.float32], factor: float, values: NDArray[np.float32]) -> None:
    scale = np.float32(factor)
    for i in range(values.size):
        target[i] += scale * values[i]


def _scale_doubles(target: NDArray[np.float64], factor: float, values: NDArray[np.float32]) -> None:
    for i in range(values.size):
        target[i] = factor * np.float64(values[i])


def _add_scaled_doubles(target: NDArray[np.float64], factor: float, values: NDArray[np.float32]) -> None:
    for i in range(values.size):
        target[i] += factor * np.float64(values[i])


ADD: Mapping[np.dtype[Any], Callable[..., None]] = {
    np.dtype(np.float32): kernel(types.void, FLOATS_OUT, FLOATS)(_add),
    np.dtype(np.float64): kernel(types.void, DOUBLES_OUT, DOUBLES)(_add),
}
"""``target += values``, by dtype; equal sizes."""
SCALE: Mapping[np.dtype[Any], Callable[..., None]] = {
    np.dtype(np.float32): kernel(types.void, FLOATS_OUT, types.float64, FLOATS)(_scale_floats),
    np.dtype(np.float64): kernel(types.void, DOUBLES_OUT, types.float64, FLOATS)(_scale_doubles),
}
"""``target = factor * values`` with float32 values, by the target's dtype."""
ADD_SCALED: Mapping[np.dtype[Any], Callable[..., None]] = {
    np.dtype(np.float32): kernel(types.void, FLOATS_OUT, types.float64, FLOATS)(_add_scaled_floats),
    np.dtype(np.float64): kernel(types.void, DOUBLES_OUT, types.float64, FLOATS)(_add_scaled_doubles),
}
"""``target += factor * values`` with float32 values, by the target's dtype."""
