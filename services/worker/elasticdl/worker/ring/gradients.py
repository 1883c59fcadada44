"""Gradients of this member's batches until their rounds are committed, and the buffers that sums are made in."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elasticdl.worker.ports import Floats
from elasticdl.worker.ring.blocks import Block, Blocks
from elasticdl.worker.ring.core.messages import BatchKey
from elasticdl.worker.ring.kernels import ADD_SCALED, SCALE

Sum = npt.NDArray[Any]
"""float32 or float64, flat."""


class Gradients:
    """Gradients of this member, unchanged, and weighted sums of them. Not thread-safe.

    Args:
        is_double: sums are float64, of records x gradient. Otherwise they are float32, and the weights are shares of
            all records, so that the sum of all members is the mean.
    """

    def __init__(self, *, is_double: bool) -> None:
        self._dtype = np.dtype(np.float64 if is_double else np.float32)
        self._kept: dict[BatchKey, tuple[int, Floats]] = {}
        self._blocks = Blocks()
        self._used: dict[int, Block] = {}
        """By the identity of a sum: its memory."""

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

    def weighted_sum(
        self,
        parts: Sequence[tuple[int, Floats]],
        size: int,
        records: int,
        *,
        is_alone: bool,
        magnitudes: tuple[int, int],
    ) -> Sum:
        """The sum of weight x gradient; zeros without parts. At least one element.

        Args:
            records: of all batches of the round.
            magnitudes: where they begin, and the power of their weights.
            is_alone: there is no other member, so the sum may be the gradient itself. Otherwise it has its own buffer.
        """
        is_double = self._dtype == np.float64
        if is_alone and len(parts) == 1 and size and not is_double:
            return parts[0][1]
        size_bytes = max(size, 1) * self._dtype.itemsize
        block = self._blocks.take(size_bytes)
        total = block.bytes[:size_bytes].view(self._dtype)
        self._used[id(total)] = block
        weakref.finalize(total, self._used.pop, id(total), None)
        if not parts or not size:
            total[:] = 0
        start, power = magnitudes
        for number, (own, gradient) in enumerate(parts):
            add = ADD_SCALED[self._dtype] if number else SCALE[self._dtype]
            weight = own if is_double else own / records
            add(total[:start], weight, gradient[:start])
            add(total[start:], weight**power, gradient[start:])
        return total

    def block_of(self, total: Sum) -> Block:
        """The memory of a sum."""
        return self._used[id(total)]

    def recycle(self, total: Sum | None) -> None:
        """Use the memory of a sum again. Nothing in this process may read the sum any more."""
        block = self._used.pop(id(total), None)
        if block is not None:
            self._blocks.give_back(block)

    def discard(self, total: Sum) -> None:
        """Never use the memory of a sum again: its reduction broke, and a neighbour may still read it."""
        self._used.pop(id(total), None)
