"""Gradient accumulation: the mean of several batches' gradients is one optimizer update.

All batches have the same weight (``grads_to_wait``), or weigh as many records as they have (synchronous training, which
averages layer state as well). Sums are float64, so that the mean does not depend on the order in which batches arrive:
the sum of a few float32 values is exact if the largest is less than about 2^16 times the smallest, and otherwise
rounding to float32 almost always hides the difference (ADR 11).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.index import IdIndex
from elasticdl.ps.engine.kernels import slabs
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model.signature import RowTable

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Rows = tuple[NDArray[np.int64], Floats]
"""ids int64[n], unique, and their float32[n, width]."""
RowSums = tuple[NDArray[np.int64], Doubles]
"""ids int64[n], unique, and their float64[n, width]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Gradients of everything on this ps.

    Attributes:
        dense: float32[trainable].
        layer_state: of a mean, that of the updates of layer state, float32[statistics].
    """

    dense: Floats
    rows: Mapping[str, Rows]
    layer_state: Floats = field(default_factory=lambda: np.empty(0, np.float32))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums of gradients, and of the layer state that is averaged with them.

    Attributes:
        dense: float64[trainable + statistics].
        rows: by table name, ids in the order in which they came.
    """

    dense: Doubles
    rows: Mapping[str, RowSums]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorState:
    """What a cut has to hold of an accumulator.

    Attributes:
        sums: their gradients times their weights, summed.
    """

    weight: int
    sums: Sums


class Accumulator:
    """Sums of gradients since the last ``take``. Belongs to one thread; gradients are checked before by the stores.

    Args:
        trainable: elements of the dense gradient.
        statistics: elements of the layer state that may be averaged with it.
    """

    def __init__(self, trainable: int, statistics: int, tables: Iterable[RowTable]) -> None:
        self.weight = 0
        """Sum of the weights of the batches accumulated since the last ``take``."""
        self._widths = {table.name: table.width for table in tables}
        self._trainable = trainable
        self._dense = np.zeros(trainable + statistics, np.float64)
        self._rows = {name: _RowSums(width) for name, width in self._widths.items()}

    def add(self, gradients: Gradients, weight: int = 1, layer_state: Floats | None = None) -> None:
        """Add one batch; a table that is not named adds zeros.

        Args:
            layer_state: float32[statistics], the batch's updates of layer state, to be averaged as well.
        """
        size = gradients.dense.size
        slabs.add_scaled(self._dense[:size], gradients.dense, weight)
        if layer_state is not None:
            slabs.add_scaled(self._dense[size:], layer_state, weight)
        for name, (ids, rows) in gradients.rows.items():
            self._rows[name].add(ids, rows, weight)
        self.weight += weight

    def mean_with(
        self, dense: Floats | Doubles | None, layer_states: Iterable[tuple[int, Floats]], weight: int
    ) -> Gradients | None:
        """Add several batches, whose gradients are put together already, and take the mean of all.

        Args:
            dense: float64: their sum of weight x gradient; float32: their weighted mean; None: 0.
            layer_states: weight and updates of layer state of each batch that has some.
            weight: of all batches.

        Returns:
            As ``take``; None: nothing is accumulated.
        """
        gradients, layer_sums = self._dense[: self._trainable], self._dense[self._trainable :]
        for each, layer_state in layer_states:
            slabs.add_scaled(layer_sums, layer_state, each)
        if dense is not None and dense.dtype == np.float32:
            if not self.weight:  # The usual case: nothing else is accumulated.
                mean = Gradients(dense=dense.view(np.float32), rows={}, layer_state=_mean(layer_sums, weight))
                layer_sums[:] = 0
                return mean
            slabs.add_scaled(gradients, dense.view(np.float32), weight)
        elif dense is not None:
            gradients += dense
        self.weight += weight
        return self.take() if self.weight else None

    def take(self) -> Gradients:
        """The weighted mean of the accumulated batches, which are forgotten; a row absent from a batch is zero there.

        Raises:
            ValueError: nothing is accumulated.
        """
        if not self.weight:
            raise ValueError("nothing is accumulated")
        weight = self.weight
        dense = _mean(self._dense, weight)
        mean = Gradients(
            dense=dense[: self._trainable],
            layer_state=dense[self._trainable :],
            rows={name: (sums.ids, _mean(sums.values, weight)) for name, sums in self._rows.items()},
        )
        self.clear()
        return mean

    def clear(self) -> None:
        """Forget everything."""
        self.weight = 0
        self._dense[:] = 0
        self._rows = {name: _RowSums(width) for name, width in self._widths.items()}

    def state(self) -> AccumulatorState:
        """A copy, for a cut."""
        rows = {name: (sums.ids.copy(), sums.values.copy()) for name, sums in self._rows.items()}
        return AccumulatorState(weight=self.weight, sums=Sums(dense=self._dense.copy(), rows=rows))

    def load(self, state: AccumulatorState) -> None:
        """Take over a state."""
        if state.sums.dense.shape != self._dense.shape or not set(state.sums.rows) <= set(self._widths):
            raise ProtocolError("accumulator: the state has another dense size or other tables")
        self.clear()
        self._dense[:] = state.sums.dense
        for name, (ids, values) in state.sums.rows.items():
            self._rows[name].load(ids, values)
        self.weight = state.weight


class _RowSums:
    """Sums of rows by id."""

    __slots__ = ("_index", "_sums", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._index = IdIndex()
        self._sums = np.zeros(0, np.float64)

    @property
    def ids(self) -> NDArray[np.int64]:
        return self._index.ids

    @property
    def values(self) -> Doubles:
        used = len(self._index)
        return self._sums[: used * self._width].reshape(used, self._width)

    def add(self, ids: NDArray[np.int64], rows: Floats, factor: float) -> None:
        slabs.add_rows(self._sums, self._places(ids), self._width, rows.reshape(-1), factor)

    def load(self, ids: NDArray[np.int64], values: Doubles) -> None:
        row_indices = self._places(ids)
        self.values[row_indices] = values

    def _places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        row_indices = self._index.insert(ids)
        needed = len(self._index) * self._width
        if needed > self._sums.size:
            self._sums.resize(max(needed, 2 * self._sums.size), refcheck=False)  # new places are zero
        return row_indices


def _mean(sums: Doubles, weight: int) -> Floats:
    mean = np.empty(sums.shape, np.float32)
    slabs.divide(sums.reshape(-1), weight, mean.reshape(-1))
    return mean
