"""What moves the dense weights of a replica in the place of a formula: an optimizer that needs whole variables."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Updater(Protocol):
    """An optimizer that keeps its state in flat floats of the caller's."""

    @property
    def initial(self) -> Floats:
        """What it keeps before the first update, float32[kept]."""
        ...

    def update(
        self, weights: Floats, kept: Floats, gradient: Floats, *, rate: float, scale: float, version: object
    ) -> None:
        """Make an update.

        Args:
            weights: float32[trainable], changed.
            kept: float32[kept], changed: bits, which need not be numbers.
            gradient: float32[trainable].
            rate: the learning rate of the optimizer, or of the first one of several.
            scale: of the learning rates of the others.
            version: another object than at the last call: weights or kept values are not those that it left.
        """
        ...
