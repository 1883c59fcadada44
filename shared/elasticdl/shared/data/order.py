"""Many positions of a ``Permutation`` at once.

numba is imported at the first call, not with the module: a process that reads nothing does not pay for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elasticdl.shared.job.permutation import ROUNDS, Permutation


def take(order: Permutation | range, start: int, stop: int) -> range | npt.NDArray[np.int64]:
    """``[order[position] for position in range(start, stop)]``.

    Args:
        stop: the position after the last one.

    Returns:
        int64, shape ``[stop - start]``; a range of a range.

    Raises:
        IndexError: the positions are not all within the order.
    """
    size = len(order) if isinstance(order, range) else order.size
    if not 0 <= start <= stop <= size:
        raise IndexError(f"positions {start} to {stop} are not within {size}")
    if isinstance(order, range):
        return order[start:stop]
    from elasticdl.shared.data import order_kernels

    found = np.empty(stop - start, np.int64)
    order_kernels.permute(size, order.half_bits, order.key, ROUNDS, start, found)
    return found
