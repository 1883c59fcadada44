"""Gradients of this member's batches until their rounds are committed, and the buffers that sums are made in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.worker.ports import Floats
from elasticdl.worker.ring.core.messages import BatchKey
from elasticdl.worker.ring.kernels import ADD_SCALED, SCALE

Sum = npt.NDArray[Any]
"""float32 or float64, flat."""


class Gradients:
    """Own gradients, intact, and sums of them. Not thread-safe.

    Args:
        is_double: sums are float64.
    """

    def __init__(self, *, is_double: bool) -> None:
        self._dtype = np.dtype(np.float64 if is_double else np.float32)
        self._kept: dict[BatchKey, tuple[int, Floats]] = {}
        self._pool = BufferPool()
        self._buffers: dict[int, npt.NDArray[np.uint8]] = {}
        """By the identity of a sum: its buffer."""

    def keep(self, key: BatchKey, records: int, gradient: Floats) -> None:
        """Keep a gradient, which must not change any more."""
        self._kept.setdefault(key, (records, gradient))

    def drop(self, keys: Iterable[BatchKey]) -> None:
        """Forget gradients of a committed round."""
        for key in keys:
            self._kept.pop(key, None)

    def clear(self) -> None:
        """Forget all gradients."""
        self._kept.clear()

    def select(self, keys: Sequence[BatchKey]) -> list[tuple[int, Floats]]:
        """Records and gradients of these batches."""
        return [self._kept[key] for key in keys]

    def weighted_sum(self, parts: Sequence[tuple[int, Floats]], size: int) -> Sum:
        """The sum of records x gradient, in a buffer of its own; zeros without parts. At least one element."""
        length = max(size, 1)
        buffer = self._pool.take(length * self._dtype.itemsize)
        total = buffer[: length * self._dtype.itemsize].view(self._dtype)
        self._buffers[id(total)] = buffer
        if not parts or not size:
            total[:] = 0
        for number, (records, gradient) in enumerate(parts):
            add = ADD_SCALED[self._dtype] if number else SCALE[self._dtype]
            add(total, float(records), gradient)
        return total

    def recycle(self, total: Sum | None) -> None:
        """Use the buffer of a sum again. Nothing may read the sum any more."""
        buffer = self._buffers.pop(id(total), None)
        if buffer is not None:
            self._pool.give_back(buffer)
