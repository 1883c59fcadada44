"""Metrics whose states add up: each worker sums its own batches, and the sums of all of them give the result."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.metric_states import MetricArrays, sum_states
from elasticdl.worker.model.traced import TracedFunction
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.module import UserModule

LOSS = "loss"
_TOLERANCE = 1e-4


class FunctionMetric(keras.metrics.Metric):  # type: ignore[misc]
    """The mean over records of a user's function of labels and predictions."""

    def __init__(self, function: Any, name: str) -> None:
        super().__init__(name=name)
        self._function = function
        self.total = self.add_variable((), "zeros", name="total")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch; a function that gives one number counts as the mean of the batch's records."""
        values = tf.cast(tf.convert_to_tensor(self._function(y_true, y_pred)), tf.float32)
        records = tf.cast(tf.shape(tf.nest.flatten(y_pred)[0])[0], tf.float32)
        if values.shape.rank == 0:
            values = tf.fill([tf.cast(records, tf.int32)], values)
        values = tf.reshape(values, [tf.cast(records, tf.int32), -1])
        weights = tf.ones_like(values)
        if sample_weight is not None:
            weights *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1, 1])
        self.total.assign_add(tf.reduce_sum(values * weights))
        self.count.assign_add(tf.reduce_sum(weights))

    def result(self) -> Any:
        """The mean so far."""
        return tf.math.divide_no_nan(self.total.value, self.count.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    name: str
    output: str | None
    metric: Any
    weighted: bool


class MetricSet:
    """The user's metrics and the mean loss, as one accumulator.

    Args:
        module: the user's model file; its ``eval_metrics_fn`` is called once.

    Raises:
        UserError: something in the dict is neither a Keras metric nor a function.
    """

    def __init__(self, module: UserModule) -> None:
        self.names: tuple[str, ...] = (LOSS,)
        """Names of the results, once ``probe`` has seen them."""
        self._module = module
        self._entries = [_Entry(name=LOSS, output=None, metric=keras.metrics.Mean(name=LOSS), weighted=False)]
        for name, value in module.make_metrics().items():
            if isinstance(value, Mapping):
                self._entries += [self._entry(f"{name}_{inner}", name, item) for inner, item in value.items()]
            else:
                self._entries.append(self._entry(name, None, value))
        self._reset_at_once: TracedFunction | None = None
        """Resets those of ``_entries`` whose ``reset_state`` is Keras' own or ours: no Python code has to run."""

    def update(self, labels: Any, predictions: Any, weights: Any, loss: Any) -> None:
        """Add a batch.

        Args:
            labels: as fed.
            predictions: as the model gives them.
            weights: one per record, or None.
            loss: the batch's mean loss.
        """
        records = tf.cast(tf.shape(tf.nest.flatten(predictions)[0])[0], tf.float32)
        self._entries[0].metric.update_state(loss, sample_weight=records)
        for entry in self._entries[1:]:
            with user_code(self._module.path, f"metric {entry.name!r}"):
                arguments = (_of(labels, entry.output), _of(predictions, entry.output))
                if weights is not None and entry.weighted:
                    entry.metric.update_state(*arguments, sample_weight=_of(weights, entry.output))
                else:
                    entry.metric.update_state(*arguments)

    def states(self) -> dict[str, list[NDArray[np.float64]]]:
        """Copies of all state variables."""
        return {e.name: [np.array(v.numpy(), np.float64) for v in e.metric.variables] for e in self._entries}

    def reset(self) -> None:
        """Start again from zero."""
        if self._reset_at_once is not None:
            self._reset_at_once()
        for entry in self._entries:
            if self._reset_at_once is None or not _is_known(entry.metric):
                entry.metric.reset_state()

    def results(self, states: MetricArrays) -> dict[str, float]:
        """The results of summed states; a metric with several values gives ``name.0``, ``name.1``...

        Raises:
            UserError: the states are not those of this file's metrics.
        """
        results: dict[str, float] = {}
        for entry in self._entries:
            arrays = states.get(entry.name)
            if arrays is None or len(arrays) != len(entry.metric.variables):
                raise UserError(
                    f"{self._module.path}: the states of metric {entry.name!r} are missing or of another kind"
                )
            for variable, array in zip(entry.metric.variables, arrays, strict=True):
                variable.assign(np.reshape(array, variable.shape).astype(variable.dtype))
            results.update(_flatten(entry.name, entry.metric.result()))
        return results

    def probe(self, labels: Any, predictions: Any, weights: Any) -> None:
        """Check on made-up predictions that states of two parts add up to the state of the whole.

        Raises:
            UserError: a metric for which they don't.
        """
        random = np.random.default_rng(1)
        other = tf.nest.map_structure(lambda p: _shaken(p, random), predictions)
        parts = []
        for number, made_up in enumerate((predictions, other)):
            self.reset()
            self.update(labels, made_up, weights, tf.constant(1.0 + number))
            parts.append(self.states())
        self.update(labels, predictions, weights, tf.constant(1.0))
        whole = self.results(self.states())
        summed = self.results(sum_states(parts))
        self.names = tuple(whole)
        self.reset()
        for name, value in whole.items():
            if not np.isclose(summed[name], value, rtol=_TOLERANCE, equal_nan=True):
                raise UserError(
                    f"{self._module.path}: metric {name!r} can't be computed by several workers: "
                    f"the states of two parts add up to {summed[name]:.6g}, the whole is {value:.6g}",
                    hint="Use a metric whose state is made of sums, or remove it from eval_metrics_fn().",
                )
        self._reset_at_once = TracedFunction(tf.function(self._reset_known, autograph=False))

    def _reset_known(self) -> None:
        for entry in self._entries:
            if _is_known(entry.metric):
                entry.metric.reset_state()

    def _entry(self, name: str, output: str | None, value: Any) -> _Entry:
        if isinstance(value, keras.metrics.Metric):
            parameters = inspect.signature(value.update_state).parameters
            return _Entry(name=name, output=output, metric=value, weighted="sample_weight" in parameters)
        if callable(value) and not isinstance(value, type):
            return _Entry(name=name, output=output, metric=FunctionMetric(value, name), weighted=True)
        raise UserError(f"{self._module.path}: metric {name!r} must be a Keras metric or a function, not {value!r}")


def _is_known(metric: Any) -> bool:
    return isinstance(metric, FunctionMetric) or type(metric).__module__.startswith("keras.")


def _of(structure: Any, output: str | None) -> Any:
    return structure[output] if output is not None and isinstance(structure, Mapping) else structure


def _shaken(prediction: Any, random: np.random.Generator) -> Any:
    """Other predictions of the same shape, still probabilities where they were."""
    values = np.asarray(prediction)
    if not np.issubdtype(values.dtype, np.floating):
        return prediction
    return tf.constant((values[::-1] * random.uniform(0.3, 1.0, values.shape)).astype(values.dtype))


def _flatten(name: str, result: Any) -> dict[str, float]:
    if isinstance(result, Mapping):
        return {
            key: value for inner, item in result.items() for key, value in _flatten(f"{name}.{inner}", item).items()
        }
    values = np.asarray(result, np.float64)
    if values.size == 1:  # Also a vector of one element, as F1Score returns for a single class.
        return {name: values.item()}
    return {f"{name}.{place}": float(value) for place, value in enumerate(values.reshape(-1))}
