"""Gradients of the rows of one table, with what the optimizer needs to know of ids that a batch has several times."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.kernels import slabs
from elasticdl.shared.errors import ProtocolError

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
_NONE: Floats = np.empty((0, 0), np.float32)


class RowGradients(NamedTuple):
    """Gradients of some rows.

    Attributes:
        ids: int64[n], unique.
        values: float32[n, width].
        magnitudes: float32[n, width], see ``Optimizer.power``; empty: the values say them.
    """

    ids: Ids
    values: Floats
    magnitudes: Floats = _NONE

    def places_of(self, some: Ids) -> Ids:
        """Where those ids are that the batch has several times, int64[m]: in the order of ``ids``.

        Raises:
            ProtocolError: they are not.
        """
        places = np.empty(some.size, np.int64)
        if slabs.places_of(some, self.ids, places) < some.size:
            raise ProtocolError("magnitudes for ids without a gradient, or in another order")
        return places

    def repeated(self, some: Ids, magnitudes: Floats, power: int) -> RowGradients:
        """The same with the magnitudes, float32[m, width], of the ids that ``places_of`` finds."""
        every = magnitudes_of(self.values, power)
        every[self.places_of(some)] = magnitudes
        return self._replace(magnitudes=every)

    def only(self, chosen: NDArray[np.bool_]) -> RowGradients:
        """Those of some rows, bool[n]."""
        magnitudes = self.magnitudes[chosen] if self.magnitudes.size else self.magnitudes
        return RowGradients(self.ids[chosen], self.values[chosen], magnitudes)


def magnitudes_of(gradients: Floats, power: int) -> Floats:
    """The magnitudes of gradients whose ids a batch has once: their squares, or absolute values."""
    found: NDArray[Any] = np.square(gradients) if power == 2 else np.abs(gradients)
    return found
