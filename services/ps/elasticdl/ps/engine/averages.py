"""Averages of dense weights: Keras' ``use_ema``, an exponential moving average over the updates of the optimizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import EMA_MOMENTUM, EMA_OVERWRITE_FREQUENCY, Optimizer


@dataclass(frozen=True, slots=True)
class MovingAverage:
    """How averages follow the weights.

    Attributes:
        momentum: share of the old average that stays.
        overwrite_every: updates after which the weights become the averages; 0: never while training.
    """

    momentum: float
    overwrite_every: int

    def move(self, averages: NDArray[np.float32], weights: NDArray[np.float32], iteration: int) -> None:
        """Take in the weights after an update, as ``keras.optimizers.Optimizer`` does.

        Args:
            averages: float32[n], changed.
            weights: float32[n]; changed if the averages overwrite them.
            iteration: updates before this one. The first one begins the averages.
        """
        momentum = np.float32(self.momentum if iteration else 0.0)
        averages *= momentum
        averages += (np.float32(1) - momentum) * weights
        if self.overwrite_every and (iteration + 1) % self.overwrite_every == 0:
            weights[:] = averages


def average_of(optimizer: Optimizer) -> MovingAverage | None:
    """The averages that an optimizer keeps; None: none."""
    momentum = optimizer.hyperparameters.get(EMA_MOMENTUM)
    if momentum is None:
        return None
    every = optimizer.hyperparameters.get(EMA_OVERWRITE_FREQUENCY, 0)
    if not 0 <= momentum <= 1 or every < 0:
        raise UserError(f"optimizer {optimizer.name!r}: {EMA_MOMENTUM}={momentum}, {EMA_OVERWRITE_FREQUENCY}={every}")
    return MovingAverage(float(momentum), int(every))
