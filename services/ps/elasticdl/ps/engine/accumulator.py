"""Gradient accumulation (``grads_to_wait``): the mean of several batches' gradients is one optimizer update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.index import IdIndex
from elasticdl.ps.engine.kernels import slabs
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model.signature import RowTable

Floats = NDArray[np.float32]
Rows = tuple[NDArray[np.int64], Floats]
"""ids int64[n], unique, and their float32[n, width]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Gradients of everything on this ps.

    Attributes:
        dense: float32[trainable].
        rows: by table name.
    """

    dense: Floats
    rows: Mapping[str, Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorState:
    """What a cut has to hold of an accumulator.

    Attributes:
        batches: batches accumulated.
        sums: their gradients, summed; ids in the order in which they came.
    """

    batches: int
    sums: Gradients


class Accumulator:
    """Sums of gradients since the last ``take``. Belongs to one thread; gradients are checked before by the stores.

    Args:
        trainable: elements of the dense gradient.
        tables: tables whose rows may be pushed.
    """

    def __init__(self, trainable: int, tables: Iterable[RowTable]) -> None:
        self.batches = 0
        """Batches accumulated since the last ``take``."""
        self._widths = {table.name: table.width for table in tables}
        self._dense = np.zeros(trainable, np.float32)
        self._rows = {name: _RowSums(width) for name, width in self._widths.items()}

    def add(self, gradients: Gradients) -> None:
        """Add one batch; a table that is not named, or an empty batch, adds zeros."""
        self._dense += gradients.dense
        for name, (ids, rows) in gradients.rows.items():
            self._rows[name].add(ids, rows)
        self.batches += 1

    def take(self) -> Gradients:
        """The mean over the accumulated batches, which are forgotten; a row absent from a batch counts as zero there.

        Raises:
            ValueError: nothing is accumulated.
        """
        if not self.batches:
            raise ValueError("nothing is accumulated")
        sums, batches = self.state().sums, np.float32(self.batches)
        self.clear()
        mean = {name: (ids, rows / batches) for name, (ids, rows) in sums.rows.items()}
        return Gradients(dense=sums.dense / batches, rows=mean)

    def clear(self) -> None:
        """Forget everything."""
        self.batches = 0
        self._dense[:] = 0
        self._rows = {name: _RowSums(width) for name, width in self._widths.items()}

    def state(self) -> AccumulatorState:
        """A copy, for a cut: bounded by ``grads_to_wait`` batches."""
        rows = {name: sums.copy() for name, sums in self._rows.items()}
        return AccumulatorState(batches=self.batches, sums=Gradients(dense=self._dense.copy(), rows=rows))

    def load(self, state: AccumulatorState) -> None:
        """Take over a state.

        Raises:
            ProtocolError: it belongs to another model.
        """
        if state.sums.dense.shape != self._dense.shape or not set(state.sums.rows) <= set(self._widths):
            raise ProtocolError("accumulator: the state has another dense size or other tables")
        self.clear()
        self.add(state.sums)
        self.batches = state.batches


class _RowSums:
    """Sums of rows by id."""

    __slots__ = ("_index", "_sums", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._index = IdIndex()
        self._sums = np.zeros(0, np.float32)

    def add(self, ids: NDArray[np.int64], rows: Floats) -> None:
        slots = self._index.insert(ids)
        needed = len(self._index) * self._width
        if needed > self._sums.size:
            self._sums.resize(max(needed, 2 * self._sums.size), refcheck=False)  # new places are zero
        slabs.add_rows(self._sums, slots, self._width, rows.reshape(-1))

    def copy(self) -> Rows:
        used = len(self._index)
        return self._index.ids.copy(), self._sums[: used * self._width].reshape(used, self._width).copy()
