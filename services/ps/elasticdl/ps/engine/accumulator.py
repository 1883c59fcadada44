"""Gradient accumulation: the mean of several batches' gradients is one optimizer update.

All batches have the same weight (``grads_to_wait``), or weigh as many records as they have (synchronous training, which
averages layer state as well). Sums are float64, so that the mean does not depend on the order in which batches arrive:
the sum of a few float32 values is exact if the largest is less than about 2^16 times the smallest, and otherwise
rounding to float32 almost always hides the difference (ADR 11).

Where the optimizer averages squares, those of lookups are added up one by one, as if all batches were one: the square
of a part of the mean is that of the part, times the square of the share that its batch has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.index import IdIndex
from elasticdl.ps.engine.kernels import slabs
from elasticdl.ps.engine.row_gradients import RowGradients, magnitudes_of
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model.signature import RowTable

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
RowSums = tuple[NDArray[np.int64], Doubles]
"""ids int64[n], unique, and their float64[n, width], or [n, 2 * width]: sums, then magnitudes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Gradients of everything on this ps.

    Attributes:
        dense: float32[trainable + gathered], magnitudes last.
        layer_state: of a mean, that of the updates of layer state, float32[statistics].
    """

    dense: Floats
    rows: Mapping[str, RowGradients]
    layer_state: Floats = field(default_factory=lambda: np.empty(0, np.float32))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums of gradients, and of the layer state that is averaged with them.

    Attributes:
        dense: float64[trainable + statistics].
        magnitudes: float64[gathered].
        rows: by table name, ids in the order in which they came.
    """

    dense: Doubles
    magnitudes: Doubles
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
        trainable: elements that dense gradients move.
        statistics: elements of the layer state that may be averaged with them.
        gathered: elements whose magnitudes follow the gradient.
        power: see ``Optimizer.power``.
    """

    def __init__(
        self, trainable: int, statistics: int, tables: Iterable[RowTable], *, gathered: int = 0, power: int = 0
    ) -> None:
        self.weight = 0
        """Sum of the weights of the batches accumulated since the last ``take``."""
        self._widths = {table.name: table.width for table in tables}
        self._trainable, self._power = trainable, power
        self._dense = np.zeros(trainable + statistics, np.float64)
        self._magnitudes = np.zeros(gathered, np.float64)
        self._rows = {name: _RowSums(width, power) for name, width in self._widths.items()}

    def add(self, gradients: Gradients, weight: int = 1, layer_state: Floats | None = None) -> None:
        """Add one batch; a table that is not named adds zeros.

        Args:
            layer_state: float32[statistics], the batch's updates of layer state, to be averaged as well.
        """
        size = self._trainable
        slabs.add_scaled(self._dense[:size], gradients.dense[:size], weight)
        slabs.add_scaled(self._magnitudes, gradients.dense[size:], weight**self._power)
        if layer_state is not None:
            slabs.add_scaled(self._dense[size:], layer_state, weight)
        for name, rows in gradients.rows.items():
            self._rows[name].add(rows, weight)
        self.weight += weight

    def mean_with(
        self, dense: Floats | Doubles | None, layer_states: Iterable[tuple[int, Floats]], weight: int
    ) -> Gradients | None:
        """Add several batches, whose gradients are put together already, and take the mean of all.

        Args:
            dense: [trainable + gathered]. float64: their sum of weight x gradient; float32: their weighted mean; None:
                0. Weights of magnitudes have their power.
            layer_states: weight and updates of layer state of each batch that has some.
            weight: of all batches.

        Returns:
            As ``take``; None: nothing is accumulated.
        """
        size = self._trainable
        gradients, layer_sums = self._dense[:size], self._dense[size:]
        for each, layer_state in layer_states:
            slabs.add_scaled(layer_sums, layer_state, each)
        if dense is not None and dense.dtype == np.float32:
            if not self.weight:  # The usual case: nothing else is accumulated.
                mean = Gradients(dense=dense.view(np.float32), rows={}, layer_state=_mean(layer_sums, weight))
                layer_sums[:] = 0
                return mean
            slabs.add_scaled(gradients, dense.view(np.float32)[:size], weight)
            slabs.add_scaled(self._magnitudes, dense.view(np.float32)[size:], weight**self._power)
        elif dense is not None:
            gradients += dense[:size]
            self._magnitudes += dense[size:]
        self.weight += weight
        return self.take() if self.weight else None

    def take(self) -> Gradients:
        """The weighted mean of the accumulated batches, which are forgotten; a row absent from a batch is zero there.

        Raises:
            ValueError: nothing is accumulated.
        """
        if not self.weight:
            raise ValueError("nothing is accumulated")
        weight, size = self.weight, self._trainable
        dense = np.empty(size + self._magnitudes.size, np.float32)
        slabs.divide(self._dense[:size], weight, dense[:size])
        slabs.divide(self._magnitudes, weight**self._power, dense[size:])
        mean = Gradients(
            dense=dense,
            layer_state=_mean(self._dense[size:], weight),
            rows={name: sums.mean(weight) for name, sums in self._rows.items()},
        )
        self.clear()
        return mean

    def clear(self) -> None:
        """Forget everything."""
        self.weight = 0
        self._dense[:] = 0
        self._magnitudes[:] = 0
        self._rows = {name: _RowSums(width, self._power) for name, width in self._widths.items()}

    def state(self) -> AccumulatorState:
        """A copy, for a cut."""
        rows = {name: (sums.ids.copy(), sums.values.copy()) for name, sums in self._rows.items()}
        sums = Sums(dense=self._dense.copy(), magnitudes=self._magnitudes.copy(), rows=rows)
        return AccumulatorState(weight=self.weight, sums=sums)

    def load(self, state: AccumulatorState) -> None:
        """Take over a state."""
        sums = state.sums
        fits = sums.dense.shape == self._dense.shape and sums.magnitudes.shape == self._magnitudes.shape
        if not fits or not set(sums.rows) <= set(self._widths):
            raise ProtocolError("accumulator: the state has another dense size or other tables")
        self.clear()
        self._dense[:] = sums.dense
        self._magnitudes[:] = sums.magnitudes
        for name, (ids, values) in sums.rows.items():
            self._rows[name].load(ids, values)
        self.weight = state.weight


class _RowSums:
    """Sums of rows by id, each followed by that of the magnitudes if the optimizer needs them."""

    __slots__ = ("_index", "_power", "_sums", "_width")

    def __init__(self, width: int, power: int) -> None:
        self._width, self._power = width, power
        self._index = IdIndex()
        self._sums = np.zeros(0, np.float64)

    @property
    def ids(self) -> NDArray[np.int64]:
        return self._index.ids

    @property
    def values(self) -> Doubles:
        used, stride = len(self._index), self._stride
        return self._sums[: used * stride].reshape(used, stride)

    @property
    def _stride(self) -> int:
        return 2 * self._width if self._power else self._width

    def add(self, rows: RowGradients, weight: float) -> None:
        places = self._places(rows.ids)
        if not self._power:
            slabs.add_rows(self._sums, places, self._width, rows.values.reshape(-1), weight)
            return
        magnitudes = rows.magnitudes if rows.magnitudes.size else magnitudes_of(rows.values, self._power)
        # Seen in halves, the sums of a row are two rows.
        slabs.add_rows(self._sums, 2 * places, self._width, rows.values.reshape(-1), weight)
        slabs.add_rows(self._sums, 2 * places + 1, self._width, magnitudes.reshape(-1), weight**self._power)

    def mean(self, weight: int) -> RowGradients:
        if not self._power:
            return RowGradients(self.ids, _mean(self.values, weight))
        gradients, magnitudes = np.split(self.values, 2, axis=1)
        means = [
            _mean(np.ascontiguousarray(sums), divisor)
            for sums, divisor in ((gradients, weight), (magnitudes, weight**self._power))
        ]
        return RowGradients(self.ids, *means)

    def load(self, ids: NDArray[np.int64], values: Doubles) -> None:
        row_indices = self._places(ids)
        self.values[row_indices] = values

    def _places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        row_indices = self._index.insert(ids)
        needed = len(self._index) * self._stride
        if needed > self._sums.size:
            self._sums.resize(max(needed, 2 * self._sums.size), refcheck=False)  # new places are zero
        return row_indices


def _mean(sums: Doubles, weight: int) -> Floats:
    mean = np.empty(sums.shape, np.float32)
    slabs.divide(sums.reshape(-1), weight, mean.reshape(-1))
    return mean
