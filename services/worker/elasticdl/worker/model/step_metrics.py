"""The training metrics of compiled steps. Each step gives their states, so that reading them needs no other call."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from elasticdl.shared.model.metric_states import MetricArrays
from elasticdl.worker.model.metrics import MetricSet


class StepMetrics:
    """Sums the training metrics over the steps of a task.

    Args:
        metrics: the sums.
        apart: they are updated apart from the step, which gives no states then.
    """

    def __init__(self, metrics: MetricSet, *, apart: bool) -> None:
        self._metrics = metrics
        self._apart = apart
        self._begins = True
        self._last: Any = None
        """States after the last step since the last ``take``, float64 (sizes of all variables,)."""
        self._flags = {begins: tf.constant(begins) for begins in (False, True)}

    @property
    def begins(self) -> Any:
        """Whether the next step sets the sums to zero first: bool, a tensor."""
        return self._flags[self._begins]

    def update(self, begins: Any, labels: Any, predictions: Any, weights: Any, loss: Any) -> Any:
        """Add a batch, inside the traced step.

        Args:
            begins: whether to set the sums to zero first, bool.
            labels: as fed.
            predictions: as the model gives them.
            weights: one per record, or None.
            loss: the batch's mean loss.

        Returns:
            The states, float64 (sizes of all variables,); empty if a step can't set the sums to zero.
        """
        if not self._is_inside:
            self._metrics.update(labels, predictions, weights, loss)
            return ()
        self._metrics.begin(begins)
        self._metrics.update(labels, predictions, weights, loss)
        return self._metrics.flat_states()

    def computed(self, states: Any) -> None:
        """Keep what a step gave."""
        if self._is_inside:
            self._begins, self._last = False, states

    def states(self) -> MetricArrays:
        """State variables since the last ``take``."""
        if not self._is_inside:
            return self._metrics.states()
        return self._metrics.zeros() if self._last is None else self._metrics.split(self._last.numpy())

    def take(self) -> MetricArrays:
        """``states``; the next step sets the sums to zero first."""
        if not self._is_inside:
            return self._metrics.take()
        states = self.states()
        self._begins, self._last = True, None
        return states

    @property
    def _is_inside(self) -> bool:
        return self._metrics.begins_with_zeros and not self._apart
