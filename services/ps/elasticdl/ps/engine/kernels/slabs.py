"""Moving slabs: gathering weights, saving rows aside for a cut, reading a cut, sums by position, finiteness.

A cut sees row ``s < limit`` as it was at the cut: ``saved_at[s]`` is 0 while the row has not changed since, else
1 + the position of its old slab among the saved ones.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.shared.model.kernels.compiled import (
    DOUBLES,
    DOUBLES_OUT,
    FLOATS,
    FLOATS_OUT,
    INT32S_OUT,
    INT64S,
    INT64S_OUT,
    kernel,
    prefetch,
    prefetch_floats,
)

_AHEAD = 12
_EXPONENT = np.int32(0x7F800000)

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@kernel(types.void, FLOATS, INT64S, types.int64, types.int64, FLOATS_OUT)
def gather(state: Floats, row_indices: Int64s, width: int, slab_width: int, out: Floats) -> None:
    """Copy the weights of row ``row_indices[i]`` to ``out[i * width :]``; a negative one leaves its place as it is."""
    count = row_indices.size
    for i in range(count):
        if i + _AHEAD < count and row_indices[i + _AHEAD] >= 0:
            prefetch_floats(state, row_indices[i + _AHEAD] * slab_width, width)
        if row_indices[i] >= 0:
            base = row_indices[i] * slab_width
            out[i * width : (i + 1) * width] = state[base : base + width]


@kernel(
    types.int64,
    FLOATS,
    INT32S_OUT,
    INT64S,
    types.int64,
    types.int64,
    INT32S_OUT,
    FLOATS_OUT,
    INT32S_OUT,
    types.int64,
)
def save_aside(
    state: Floats,
    changed: Int32s,
    row_indices: Int64s,
    slab_width: int,
    limit: int,
    saved_at: Int32s,
    saved: Floats,
    saved_changed: Int32s,
    used: int,
) -> int:
    """Save the slabs of ``row_indices`` that the cut sees and has not saved; returns how many are saved now."""
    count = row_indices.size
    for i in range(count):
        if i + _AHEAD < count and row_indices[i + _AHEAD] < limit:
            prefetch(saved_at, row_indices[i + _AHEAD])
            prefetch_floats(state, row_indices[i + _AHEAD] * slab_width, slab_width)
        row_index = row_indices[i]
        if row_index < limit and saved_at[row_index] == 0:
            base = row_index * slab_width
            saved[used * slab_width : (used + 1) * slab_width] = state[base : base + slab_width]
            saved_changed[used] = changed[row_index]
            used += 1
            saved_at[row_index] = used
    return used


@kernel(types.void, FLOATS, FLOATS, INT32S_OUT, INT64S, types.int64, types.int64, types.int64, FLOATS_OUT)
def gather_cut(
    state: Floats,
    saved: Floats,
    saved_at: Int32s,
    row_indices: Int64s,
    limit: int,
    width: int,
    slab_width: int,
    out: Floats,
) -> None:
    """Copy ``width`` floats of the slab of ``row_indices[i]`` as the cut sees it; others are left out."""
    for i in range(row_indices.size):
        row_index = row_indices[i]
        if row_index < 0 or row_index >= limit:
            continue
        if saved_at[row_index] == 0:
            base = row_index * slab_width
            out[i * width : (i + 1) * width] = state[base : base + width]
        else:
            base = (saved_at[row_index] - 1) * slab_width
            out[i * width : (i + 1) * width] = saved[base : base + width]


@kernel(types.int64, INT32S_OUT, INT32S_OUT, INT32S_OUT, types.int64, types.int64, types.int64, INT64S_OUT)
def changed_rows(
    changed: Int32s, saved_changed: Int32s, saved_at: Int32s, since: int, start: int, stop: int, out: Int64s
) -> int:
    """Write the row indices in ``[start, stop)`` that changed after ``since``, as the cut sees it; returns how many."""
    count = 0
    for row_index in range(start, stop):
        generation = changed[row_index] if saved_at[row_index] == 0 else saved_changed[saved_at[row_index] - 1]
        if generation > since:
            out[count] = row_index
            count += 1
    return count


@kernel(types.void, FLOATS_OUT, INT32S_OUT, INT64S, INT64S, types.int64)
def move(state: Floats, changed: Int32s, sources: Int64s, row_indices: Int64s, slab_width: int) -> None:
    """Move slab after slab from ``sources[i]`` to ``row_indices[i]``."""
    for i in range(row_indices.size):
        source, target = sources[i] * slab_width, row_indices[i] * slab_width
        if source != target:
            state[target : target + slab_width] = state[source : source + slab_width]
            changed[row_indices[i]] = changed[sources[i]]


@kernel(types.void, DOUBLES_OUT, FLOATS, types.float64)
def add_scaled(sums: Doubles, values: Floats, factor: float) -> None:
    """``sums += factor * values``."""
    for i in range(values.size):
        sums[i] += factor * values[i]


@kernel(types.void, DOUBLES, types.float64, FLOATS_OUT)
def divide(sums: Doubles, divisor: float, out: Floats) -> None:
    """``out = sums / divisor``, rounded once."""
    for i in range(sums.size):
        out[i] = np.float32(sums[i] / divisor)


@kernel(types.void, DOUBLES_OUT, INT64S, types.int64, FLOATS, types.float64)
def add_rows(sums: Doubles, row_indices: Int64s, width: int, rows: Floats, factor: float) -> None:
    """``sums[row_indices[i] * width :] += factor * rows[i * width :]``."""
    for i in range(row_indices.size):
        total = sums[row_indices[i] * width : (row_indices[i] + 1) * width]
        row = rows[i * width : (i + 1) * width]
        for column in range(width):
            total[column] += factor * row[column]


@kernel(types.int64, INT64S, INT64S, INT64S_OUT)
def places_of(some: Int64s, ids: Int64s, places: Int64s) -> int:
    """Write where some of the ids are among all, in whose order they come; returns how many were found."""
    found = 0
    for i in range(ids.size):
        if found < some.size and ids[i] == some[found]:
            places[found] = i
            found += 1
    return found


@kernel(types.boolean, FLOATS)
def all_finite(values: Floats) -> bool:
    """Whether no value is infinite or NaN."""
    bits = values.view(np.int32)
    bad = np.int32(0)
    for i in range(bits.size):
        bad |= np.int32((bits[i] & _EXPONENT) == _EXPONENT)
    return bool(bad == 0)
