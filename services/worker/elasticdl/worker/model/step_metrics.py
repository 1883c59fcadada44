"""The training metrics of one batch. The compiled step gives their states, so that reading them needs no other call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.worker.model.metrics import MetricSet


class StepMetrics:
    """Computes the training metrics of each batch alone: the ps adds them up.

    Args:
        apart: they are updated apart from the step, which gives no states then.
    """

    def __init__(self, metrics: MetricSet, *, apart: bool) -> None:
        self._metrics = metrics
        self._apart = apart

    def update(self, labels: Any, predictions: Any, weights: Any, loss: Any) -> Any:
        """Compute those of a batch, inside the traced step.

        Args:
            weights: one per record, or None.

        Returns:
            The states, float64 (sizes of all variables,); empty if a step can't begin with zeros.
        """
        if self._is_inside:
            self._metrics.begin()
        self._metrics.update(labels, predictions, weights, loss)
        return self._metrics.flat_states() if self._is_inside else ()

    def states(self, computed: Any) -> NDArray[np.float64]:
        """The states of the last batch; ``computed`` is what ``update`` gave in its step."""
        return np.asarray(computed) if self._is_inside else self._metrics.take()

    def discard(self) -> None:
        """Forget a batch whose step raised an error: it may have updated some of the metrics."""
        if not self._is_inside:
            self._metrics.reset()

    @property
    def _is_inside(self) -> bool:
        return self._metrics.begins_with_zeros and not self._apart
