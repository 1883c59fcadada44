"""An open-addressing hash table from any int64 id to a row index, with linear probing.

The table is a flat int64 array of pairs ``(id, row index)``, so that a probe costs one cache line. Its number of pairs
is a power of two, and row index ``EMPTY`` marks a free pair: no id is reserved. Ids arrive at a ps selected by a hash
of theirs (the partition), so the table salts its own: otherwise its ids would crowd into a fraction of the pairs.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.shared.model.kernels.compiled import INT64S, INT64S_OUT, inlined, kernel, prefetch
from elasticdl.shared.model.kernels.mix64 import mix64

EMPTY = -1
"""Row index of a free pair, and the answer for an unknown id."""
_AHEAD = 16
"""Ids between the prefetch and its use: enough to hide main memory's latency."""
_SALT = np.uint64(0x5851F42D4C957F2D)


@inlined
def _home(row_id: int, mask: int) -> int:
    return 2 * int(np.int64(mix64(np.uint64(row_id) ^ _SALT)) & mask)


@kernel(types.int64, INT64S, INT64S, INT64S_OUT)
def find(table: NDArray[np.int64], ids: NDArray[np.int64], row_indices: NDArray[np.int64]) -> int:
    """``row_indices[i]`` = row index of ``ids[i]``, or ``EMPTY``; returns how many ids are unknown."""
    mask = table.size // 2 - 1
    count = ids.size
    unknown = 0
    for i in range(min(_AHEAD, count)):
        prefetch(table, _home(ids[i], mask))
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(table, _home(ids[i + _AHEAD], mask))
        row_id = ids[i]
        pair = _home(row_id, mask)
        while table[pair + 1] != EMPTY and table[pair] != row_id:
            pair = (pair + 2) & (2 * mask + 1)
        row_indices[i] = table[pair + 1]
        unknown += table[pair + 1] == EMPTY
    return unknown


@kernel(types.int64, INT64S_OUT, INT64S, INT64S_OUT, INT64S_OUT, types.int64)
def insert(
    table: NDArray[np.int64],
    ids: NDArray[np.int64],
    row_indices: NDArray[np.int64],
    known: NDArray[np.int64],
    used: int,
) -> int:
    """Like ``find``, but an unknown id gets the next row index; returns the number of rows afterwards.

    ``known[row_index]`` becomes the id of each new row. The table must have more free pairs than ``ids`` has elements.
    """
    mask = table.size // 2 - 1
    count = ids.size
    for i in range(min(_AHEAD, count)):
        prefetch(table, _home(ids[i], mask))
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(table, _home(ids[i + _AHEAD], mask))
        row_id = ids[i]
        pair = _home(row_id, mask)
        while table[pair + 1] != EMPTY and table[pair] != row_id:
            pair = (pair + 2) & (2 * mask + 1)
        if table[pair + 1] == EMPTY:
            table[pair] = row_id
            table[pair + 1] = used
            known[used] = row_id
            used += 1
        row_indices[i] = table[pair + 1]
    return used


@kernel(types.void, INT64S_OUT, INT64S_OUT, types.int64, INT64S, INT64S_OUT)
def remove(
    table: NDArray[np.int64],
    ids: NDArray[np.int64],
    used: int,
    row_indices: NDArray[np.int64],
    sources: NDArray[np.int64],
) -> None:
    """Remove the ids of ``row_indices``, in descending order; the id of the last row takes the place of each.

    ``ids`` int64[used] has the id of every row; ``sources[i]`` becomes the row whose id went to ``row_indices[i]``.
    What belongs to an id has to be moved in the same order.
    """
    mask = table.size // 2 - 1
    around = 2 * mask + 1
    for i in range(row_indices.size):
        hole = _home(ids[row_indices[i]], mask)
        while table[hole] != ids[row_indices[i]] or table[hole + 1] == EMPTY:
            hole = (hole + 2) & around
        pair = (hole + 2) & around
        while table[pair + 1] != EMPTY:
            # An id is found from its home on without a free pair in between, so those behind the hole close it.
            if (pair - _home(table[pair], mask)) & around >= (pair - hole) & around:
                table[hole] = table[pair]
                table[hole + 1] = table[pair + 1]
                hole = pair
            pair = (pair + 2) & around
        table[hole + 1] = EMPTY
        used -= 1
        sources[i] = used
        if used != row_indices[i]:
            pair = _home(ids[used], mask)
            while table[pair] != ids[used] or table[pair + 1] == EMPTY:
                pair = (pair + 2) & around
            table[pair + 1] = row_indices[i]
            ids[row_indices[i]] = ids[used]


@kernel(types.int64, INT64S, types.int64)
def first_outside(ids: NDArray[np.int64], bound: int) -> int:
    """Position of an id that is not within ``[0, bound)``, or -1."""
    outside = False
    for i in range(ids.size):  # Without a branch, so that it is vectorised.
        outside |= (ids[i] < 0) | (ids[i] >= bound)
    if outside:
        for i in range(ids.size):
            if ids[i] < 0 or ids[i] >= bound:
                return i
    return -1


@kernel(types.int64, INT64S)
def first_repeated(ids: NDArray[np.int64]) -> int:
    """Position of the first id that occurred before, or -1."""
    count = 16
    while count < 2 * ids.size:  # At most half full: a probe rarely takes a second step.
        count *= 2
    places = np.zeros(count, np.int32)  # A place has 1 + the position of an id.
    mask = count - 1
    for i in range(ids.size):
        place = int(np.int64(mix64(np.uint64(ids[i]) ^ _SALT)) & mask)
        while places[place] != 0:
            if ids[places[place] - 1] == ids[i]:
                return i
            place = (place + 1) & mask
        places[place] = i + 1
    return -1
