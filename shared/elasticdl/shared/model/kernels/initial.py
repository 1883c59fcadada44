"""Initial rows: a distribution driven by a hash of (table key, id, column), the same on every ps and at every time."""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.shared.model.kernels.compiled import FLOATS_OUT, INT64S, inlined, kernel
from elasticdl.shared.model.kernels.mix64 import mix64

CONSTANT, UNIFORM, NORMAL, TRUNCATED_NORMAL = range(4)

_TRUNCATED_AT = 2.0
"""Standard deviations beyond which Keras' TruncatedNormal draws again."""


@inlined
def _normal(bits: np.uint64) -> float:
    """A standard normal deviate from 64 random bits (Box and Muller, 1958): 32 for the radius, 32 for the angle."""
    radius = (np.float64(bits >> np.uint64(32)) + 1.0) * 2.0**-32
    angle = np.float64(bits & np.uint64(0xFFFFFFFF)) * 2.0**-32
    return math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)


@inlined
def _value(bits: np.uint64, distribution: int, low: float, high: float) -> np.float32:
    if distribution == CONSTANT:
        return np.float32(low)
    if distribution == UNIFORM:
        fraction = np.float32(np.int64(bits >> np.uint64(40))) * np.float32(2.0**-24)
        return np.float32(low) + np.float32(high - low) * fraction
    deviate = _normal(bits)
    while distribution == TRUNCATED_NORMAL and abs(deviate) > _TRUNCATED_AT:
        bits = mix64(bits)
        deviate = _normal(bits)
    return np.float32(low + high * deviate)


@inlined
def _fill_row(
    key: np.uint64,
    distribution: int,
    low: float,
    high: float,
    row_id: int,
    base: int,
    width: int,
    out: NDArray[np.float32],
) -> None:
    row_bits = mix64(key ^ np.uint64(row_id))
    for column in range(width):
        out[base + column] = _value(mix64(row_bits + np.uint64(column)), distribution, low, high)


_DISTRIBUTION = (types.uint64, types.int64, types.float64, types.float64)


@kernel(types.void, *_DISTRIBUTION, INT64S, types.int64, types.int64, FLOATS_OUT)
def fill(
    key: np.uint64,
    distribution: int,
    low: float,
    high: float,
    ids: NDArray[np.int64],
    width: int,
    stride: int,
    out: NDArray[np.float32],
) -> None:
    """Write the initial row of ``ids[i]``, ``width`` floats, at ``out[i * stride :]``."""
    for i in range(ids.size):
        _fill_row(key, distribution, low, high, ids[i], i * stride, width, out)


@kernel(types.void, *_DISTRIBUTION, INT64S, types.int64, INT64S, types.int64, FLOATS_OUT)
def fill_missing(
    key: np.uint64,
    distribution: int,
    low: float,
    high: float,
    ids: NDArray[np.int64],
    width: int,
    row_indices: NDArray[np.int64],
    limit: int,
    out: NDArray[np.float32],
) -> None:
    """Like ``fill`` with ``stride = width``, only where ``row_indices[i]`` is not in ``[0, limit)``."""
    for i in range(ids.size):
        if row_indices[i] < 0 or row_indices[i] >= limit:
            _fill_row(key, distribution, low, high, ids[i], i * width, width, out)
