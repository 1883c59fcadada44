"""What becomes of rows that were not used for a while, and of ids that were not seen often enough.

The numbers are int32 in the places of float32: the last place of a slab says after which update the row was last
touched, and the first place of a candidate's slab how many updates have had a gradient for its id. A row expires
``expire_after`` updates after the last one that touched it.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.ps.engine.kernels.index import EMPTY
from elasticdl.shared.model.kernels.compiled import INT32S_OUT, INT64S, INT64S_OUT, inlined, kernel, prefetch

_AHEAD = 12
_BOOLEANS_OUT = types.Array(types.boolean, 1, "C")
_INT32S = types.Array(types.int32, 1, "C", readonly=True)

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@inlined
def _is_expired(touched: int, now: int, expire_after: int) -> bool:
    return expire_after != 0 and now - touched >= expire_after


@kernel(types.int64, _INT32S, INT64S_OUT, types.int64, _INT32S, types.int64)
def leave_out_expired(state: Int32s, row_indices: Int64s, slab_width: int, now: Int32s, expire_after: int) -> int:
    """Make ``row_indices[i]`` ``EMPTY`` where the row has expired after ``now[i]`` updates; returns how many did."""
    count, expired = row_indices.size, 0
    for i in range(count):
        if i + _AHEAD < count and row_indices[i + _AHEAD] >= 0:
            prefetch(state, (row_indices[i + _AHEAD] + 1) * slab_width - 1)
        row_index = row_indices[i]
        if row_index >= 0 and _is_expired(state[(row_index + 1) * slab_width - 1], now[i], expire_after):
            row_indices[i] = EMPTY
            expired += 1
    return expired


@kernel(types.int64, INT32S_OUT, INT64S, types.int64, types.int64, types.int64, types.int64, _BOOLEANS_OUT)
def count(
    state: Int32s,
    row_indices: Int64s,
    slab_width: int,
    min_count: int,
    now: int,
    expire_after: int,
    admitted: NDArray[np.bool_],
) -> int:
    """Count one more update for each candidate at ``row_indices``; those that reach ``min_count`` start from 0 again.

    ``admitted[i]`` becomes whether it did; returns how many. A slab has a second place if candidates expire.
    """
    found = 0
    for i in range(row_indices.size):
        base = row_indices[i] * slab_width
        seen = state[base] + 1
        if expire_after:
            if _is_expired(state[base + 1], now, expire_after):
                seen = 1
            state[base + 1] = now + 1
        admitted[i] = seen >= min_count
        found += admitted[i]
        state[base] = 0 if admitted[i] else seen
    return found
