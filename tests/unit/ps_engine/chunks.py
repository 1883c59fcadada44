"""The rows of a cut as arrays: what a snapshot's objects are read back as."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.cuts import RowCut


def chunks(cut: RowCut, rows_max: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Yield (ids int64[k], slabs float32[k, slab width]), which stay as they are."""
    for rows, data in cut.packed(rows_max):
        ids, slabs = data[: 8 * rows].view(np.int64), data[8 * rows :].view(np.float32)
        yield ids.copy(), slabs.reshape(rows, -1).copy()
