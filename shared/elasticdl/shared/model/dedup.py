"""Deduplicating a batch's ids and summing the gradients of repeated ones, before anything travels.

numba is imported at the first call, not with the module: a process that never deduplicates does not pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from elasticdl.shared.model.aligned import aligned_empty


def unique_inverse(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The distinct ids of a batch in the order of their first occurrence, and where each id is among them.

    Args:
        ids: int64[n], any values, C-contiguous, n < 2**31.

    Returns:
        (unique int64[u], inverse int32[n], aligned) with ``unique[inverse] == ids``.
    """
    from elasticdl.shared.model.kernels import dedup as kernels

    # At most half full: a probe rarely takes a second step.
    table = np.zeros(1 << max(4, (2 * ids.size - 1).bit_length()), np.int32)
    unique, inverse = np.empty(ids.size, np.int64), aligned_empty(ids.size, np.int32)
    found = kernels.unique_inverse(ids, table, unique, inverse)
    return unique[:found].copy(), inverse


def unique_by_table(ids: Mapping[str, NDArray[np.int64]]) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """``unique_inverse`` of each table's ids; tables that share one array share the result."""
    found: dict[int, tuple[NDArray[np.int64], NDArray[np.int32]]] = {}
    for own in ids.values():
        if id(own) not in found:
            found[id(own)] = unique_inverse(own)
    return {table: found[id(own)] for table, own in ids.items()}


def sum_rows(inverse: NDArray[np.int32], gradients: NDArray[np.float32], unique: int) -> NDArray[np.float32]:
    """Sum the gradient rows of equal ids, in the order of the batch (so the same batch gives the same bits).

    Args:
        inverse: int32[n] from ``unique_inverse``.
        gradients: float32[n, width], C-contiguous.

    Returns:
        float32[unique, width].
    """
    from elasticdl.shared.model.kernels import dedup as kernels

    sums = np.zeros((unique, gradients.shape[1]), np.float32)
    kernels.sum_rows(inverse, gradients, sums)
    return sums


def sum_parts(
    inverse: NDArray[np.int32], parts: NDArray[np.float32], unique: int, power: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
    """``sum_rows``, and of the rows that have several parts the sums of their magnitudes.

    Args:
        power: see ``Optimizer.power``; not 0.

    Returns:
        float32[unique, width]; the rows with several parts, int64[m]; the sums of their squares or absolute values,
        float32[m, width].
    """
    from elasticdl.shared.model.kernels import dedup as kernels

    shape = unique, parts.shape[1]
    sums, magnitudes = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    uses, repeated = np.zeros(unique, np.int32), np.empty(unique, np.int64)
    found = kernels.sum_parts(inverse, parts, power, sums, magnitudes, uses, repeated)
    return sums, repeated[:found], magnitudes[:found]
