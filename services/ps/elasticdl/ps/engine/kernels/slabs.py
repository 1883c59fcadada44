"""Moving slabs: gathering weights, saving rows aside for a cut, reading a cut, sums by position, finiteness.

A cut sees slot ``s < limit`` as it was at the cut: ``saved_at[s]`` is 0 while the row has not changed since, else
1 + the position of its old slab among the saved ones.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.ps.engine.kernels.compiled import (
    FLOATS,
    FLOATS_OUT,
    INT32S_OUT,
    INT64S,
    INT64S_OUT,
    LINE_FLOATS,
    inlined,
    kernel,
    prefetch,
)

_AHEAD = 12
_EXPONENT = np.int32(0x7F800000)

Floats = NDArray[np.float32]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@inlined
def _prefetch_row(state: Floats, base: int, size: int) -> None:
    for line in range(0, size, LINE_FLOATS):
        prefetch(state, base + line)


@kernel(types.void, FLOATS, INT64S, types.int64, types.int64, FLOATS_OUT)
def gather(state: Floats, slots: Int64s, width: int, slab_width: int, out: Floats) -> None:
    """Copy the weights of row ``slots[i]`` to ``out[i * width :]``; a slot below 0 leaves its place as it is."""
    count = slots.size
    for i in range(count):
        if i + _AHEAD < count and slots[i + _AHEAD] >= 0:
            _prefetch_row(state, slots[i + _AHEAD] * slab_width, width)
        if slots[i] >= 0:
            base = slots[i] * slab_width
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
    slots: Int64s,
    slab_width: int,
    limit: int,
    saved_at: Int32s,
    saved: Floats,
    saved_changed: Int32s,
    used: int,
) -> int:
    """Save the slabs of ``slots`` that the cut sees and has not saved; returns the number of saved slabs afterwards."""
    count = slots.size
    for i in range(count):
        if i + _AHEAD < count and slots[i + _AHEAD] < limit:
            prefetch(saved_at, slots[i + _AHEAD])
            _prefetch_row(state, slots[i + _AHEAD] * slab_width, slab_width)
        slot = slots[i]
        if slot < limit and saved_at[slot] == 0:
            base = slot * slab_width
            saved[used * slab_width : (used + 1) * slab_width] = state[base : base + slab_width]
            saved_changed[used] = changed[slot]
            used += 1
            saved_at[slot] = used
    return used


@kernel(types.void, FLOATS, FLOATS, INT32S_OUT, INT64S, types.int64, types.int64, types.int64, FLOATS_OUT)
def gather_cut(
    state: Floats,
    saved: Floats,
    saved_at: Int32s,
    slots: Int64s,
    limit: int,
    width: int,
    slab_width: int,
    out: Floats,
) -> None:
    """Copy ``width`` floats of the slab of ``slots[i]`` as the cut sees it; one outside of the cut is left out."""
    for i in range(slots.size):
        slot = slots[i]
        if slot < 0 or slot >= limit:
            continue
        if saved_at[slot] == 0:
            base = slot * slab_width
            out[i * width : (i + 1) * width] = state[base : base + width]
        else:
            base = (saved_at[slot] - 1) * slab_width
            out[i * width : (i + 1) * width] = saved[base : base + width]


@kernel(types.int64, INT32S_OUT, INT32S_OUT, INT32S_OUT, types.int64, types.int64, types.int64, INT64S_OUT)
def changed_slots(
    changed: Int32s, saved_changed: Int32s, saved_at: Int32s, since: int, start: int, stop: int, out: Int64s
) -> int:
    """Write the slots in ``[start, stop)`` that changed after ``since``, as the cut sees it; returns how many."""
    count = 0
    for slot in range(start, stop):
        generation = changed[slot] if saved_at[slot] == 0 else saved_changed[saved_at[slot] - 1]
        if generation > since:
            out[count] = slot
            count += 1
    return count


@kernel(types.void, FLOATS_OUT, INT32S_OUT, INT64S, INT64S, types.int64)
def move(state: Floats, changed: Int32s, sources: Int64s, slots: Int64s, slab_width: int) -> None:
    """Move slab after slab from ``sources[i]`` to ``slots[i]``."""
    for i in range(slots.size):
        source, slot = sources[i] * slab_width, slots[i] * slab_width
        if source != slot:
            state[slot : slot + slab_width] = state[source : source + slab_width]
            changed[slots[i]] = changed[sources[i]]


@kernel(types.void, FLOATS_OUT, INT64S, types.int64, FLOATS)
def add_rows(sums: Floats, slots: Int64s, width: int, rows: Floats) -> None:
    """``sums[slots[i] * width :] += rows[i * width :]``."""
    for i in range(slots.size):
        total = sums[slots[i] * width : (slots[i] + 1) * width]
        row = rows[i * width : (i + 1) * width]
        for column in range(width):
            total[column] += row[column]


@kernel(types.boolean, types.Array(types.int32, 1, "C", readonly=True))
def all_finite(bits: Int32s) -> bool:
    """Whether no float32 in ``bits`` (a float32 array viewed as int32) is infinite or NaN."""
    bad = np.int32(0)
    for i in range(bits.size):
        bad |= np.int32((bits[i] & _EXPONENT) == _EXPONENT)
    return bool(bad == 0)
