"""Metrics whose states add up: each worker sums its own batches, and the sums of all of them give the result."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.metric_states import MetricArrays, sum_states
from elasticdl.worker.model.traced import TracedFunction
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.compiled import OutputLoss
from elasticdl.worker.model.user.module import UserModule

LOSS = "loss"
METRICS, WEIGHTED_METRICS = "eval_metrics_fn", "weighted_eval_metrics_fn"
"""Functions of the model file: Keras' ``metrics`` and ``weighted_metrics``."""
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


class MeanLoss(keras.metrics.Mean):  # type: ignore[misc]
    """The mean loss of one output over records."""

    def __init__(self, loss: OutputLoss, name: str) -> None:
        super().__init__(name=name)
        self._loss = loss
        self._direction = "down"

    def update_state(self, labels: Any, predictions: Any, sample_weight: Any = None) -> None:
        """Add a batch, which counts by its records, as the loss of all outputs does."""
        records = tf.cast(tf.shape(tf.nest.flatten(predictions)[0])[0], tf.float32)
        super().update_state(self._loss(labels, predictions, sample_weight), sample_weight=records)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    name: str
    output: str | None
    metric: Any
    weighted: bool


class MetricSet:
    """The user's metrics and the mean loss, as one accumulator.

    Args:
        module: the user's model file; its ``eval_metrics_fn`` and ``weighted_eval_metrics_fn`` are called once.

    Raises:
        UserError: something in a dict is neither a Keras metric nor a function, or it has to take weights and does not.
    """

    def __init__(self, module: UserModule) -> None:
        self.names: tuple[str, ...] = (LOSS,)
        """Names of the results, once ``probe`` has seen them."""
        self._module = module
        self._entries = [_Entry(name=LOSS, output=None, metric=keras.metrics.Mean(name=LOSS), weighted=False)]
        self._outputs: tuple[str, ...] = ()
        """Names of the model's outputs, in their order."""
        for function in (METRICS, WEIGHTED_METRICS):
            for name, value in module.make_metrics(function).items():
                if isinstance(value, Mapping):
                    self._add(function, {f"{name}_{inner}": item for inner, item in value.items()}, name)
                else:
                    self._add(function, {name: value}, None)
        self._states_at_once: TracedFunction | None = None
        """All state variables as one float64 vector: to read them one by one takes TensorFlow ten times as long."""
        self.begins_with_zeros = False
        """Whether all that a reset does is to set the state variables to zero."""
        self._take_at_once: TracedFunction | None = None
        """Gives the same, and resets those of ``_entries`` whose ``reset_state`` is Keras' own or ours."""

    @property
    def directions(self) -> dict[str, str]:
        """Result -> ``up`` if more is better, ``down`` if less is; empty if Keras does not know."""
        known = {entry.name: getattr(entry.metric, "_direction", "") for entry in self._entries} | {LOSS: "down"}
        return {name: known.get(name, "") for name in self.names}

    def update(self, labels: Any, predictions: Any, weights: Any, loss: Any) -> None:
        """Add a batch; ``weights``: one per record, or None."""
        records = tf.cast(tf.shape(tf.nest.flatten(predictions)[0])[0], tf.float32)
        self._entries[0].metric.update_state(loss, sample_weight=records)
        for entry in self._entries[1:]:
            with user_code(self._module.path, f"metric {entry.name!r}"):
                arguments = (self._of(labels, entry.output), self._of(predictions, entry.output))
                if weights is not None and entry.weighted:
                    entry.metric.update_state(*arguments, sample_weight=self._of(weights, entry.output))
                else:
                    entry.metric.update_state(*arguments)

    def states(self) -> MetricArrays:
        """Copies of all state variables."""
        if self._states_at_once is None:
            return {e.name: [np.array(v.numpy(), np.float64) for v in e.metric.variables] for e in self._entries}
        return self.split(self._states_at_once().numpy())

    def take(self) -> NDArray[np.float64]:
        """All state variables as one vector (see ``split``); then ``reset``."""
        take = self._take_at_once
        values: NDArray[np.float64] = (self.flat_states() if take is None else take()).numpy()
        for entry in self._entries:
            if take is None or not _is_known(entry.metric):
                entry.metric.reset_state()
        return values

    def reset(self) -> None:
        """Start again from zero."""
        self.take()

    def split(self, values: NDArray[np.float64]) -> MetricArrays:
        """What ``take`` or ``flat_states`` gave, as arrays of the variables' shapes."""
        size = max([end for places in self._places.values() for _, end, _ in places], default=0)
        if values.size != size:
            raise UserError(
                f"{self._module.path}: the metrics have {size} state values, but {values.size} were summed",
                hint="Resume with the model file and the library versions with which the epoch began.",
            )
        return {
            name: [values[start:end].reshape(shape) for start, end, shape in places]
            for name, places in self._places.items()
        }

    @cached_property
    def _places(self) -> Mapping[str, list[tuple[int, int, tuple[int, ...]]]]:
        """Where ``flat_states`` has each variable of a metric: first and end position, and the variable's shape.

        Keras makes a new shape object at each question, and each task of a small batch would ask for all of them.
        """
        places: dict[str, list[tuple[int, int, tuple[int, ...]]]] = {}
        start = 0
        for entry in self._entries:
            places[entry.name] = []
            for variable in entry.metric.variables:
                shape = tuple(variable.shape)
                end = start + math.prod(shape)
                places[entry.name].append((start, end, shape))
                start = end
        return places

    def results(self, states: MetricArrays) -> dict[str, float]:
        """The results of summed states; a metric with several values gives ``name.0``, ``name.1``...

        The values of a dict have the names of their keys, as in ``fit()``, where no other result has that name.
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
            others = {other.name for other in self._entries if other is not entry}
            for name, value in flatten_result(entry.name, entry.metric.result()):
                results[f"{entry.name}.{name}" if name in others or name in results else name] = value
        return results

    def probe(self, labels: Any, predictions: Any, weights: Any, outputs: tuple[str, ...]) -> None:
        """Check on made-up predictions that states of two parts add up to the state of the whole.

        Args:
            weights: one per record, or None.
            outputs: names of the model's outputs, in their order; empty: they have none.

        Raises:
            UserError: a metric for which they don't, or one for an output that the model does not have.
        """
        self._outputs = outputs
        self._add_compiled(labels, predictions)
        self._check_outputs(labels)
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
        is_zero = not any(np.any(array) for arrays in self.states().values() for array in arrays)
        self.begins_with_zeros = is_zero and all(_is_known(entry.metric) for entry in self._entries)
        for name, value in whole.items():
            if not np.isclose(summed[name], value, rtol=_TOLERANCE, equal_nan=True):
                raise UserError(
                    f"{self._module.path}: metric {name!r} can't be computed by several workers: "
                    f"the states of two parts add up to {summed[name]:.6g}, the whole is {value:.6g}",
                    hint="Use a metric whose state is made of sums, or remove it from eval_metrics_fn().",
                )
        self._states_at_once = TracedFunction(tf.function(self.flat_states, autograph=False))
        self._take_at_once = TracedFunction(tf.function(self._take_known, autograph=False))

    def begin(self) -> None:
        """Set all sums to zero in a traced function, for metrics that begin with zeros."""
        for entry in self._entries:
            for variable in entry.metric.variables:
                variable.assign(tf.zeros(variable.shape, variable.dtype))

    def flat_states(self) -> Any:
        """All state variables as one tensor, float64 (sizes of all variables,)."""
        variables = [variable for entry in self._entries for variable in entry.metric.variables]
        return tf.concat([tf.reshape(tf.cast(variable.value, tf.float64), [-1]) for variable in variables], 0)

    def _take_known(self) -> Any:
        states = self.flat_states()
        for entry in self._entries:
            if _is_known(entry.metric):
                entry.metric.reset_state()
        return states

    def _check_outputs(self, labels: Any) -> None:
        for entry in self._entries:
            if entry.output is None:
                continue
            name = f"{self._module.path}: metric {entry.name!r} is for the output {entry.output!r}"
            if entry.output not in self._outputs:
                names = f"Outputs of this model: {', '.join(self._outputs)}."
                unnamed = "The outputs of this model have no names. Return a dict of outputs, or give {name: metric}."
                raise UserError(f"{name}, which the model does not have", hint=names if self._outputs else unnamed)
            if isinstance(labels, Mapping) and entry.output not in labels:
                raise UserError(f"{name}, for which the feed gives no labels", hint=f"Labels: {', '.join(labels)}.")

    def _of(self, structure: Any, output: str | None) -> Any:
        """What belongs to an output; everything if there is only one."""
        if output is None:
            return structure
        if isinstance(structure, Mapping):
            return structure[output]
        return structure[self._outputs.index(output)] if isinstance(structure, (list, tuple)) else structure

    def _add(self, function: str, metrics: Mapping[str, Any], output: str | None) -> None:
        known = {entry.name for entry in self._entries}
        weighted = function == WEIGHTED_METRICS
        for name, value in metrics.items():
            metric = self._metric(function, name, value)
            if weighted and "sample_weight" not in inspect.signature(metric.update_state).parameters:
                raise UserError(
                    f"{self._module.path}: metric {name!r} takes no sample weights",
                    hint=f"Give its update_state() a parameter sample_weight, or move it to {METRICS}().",
                )
            shown = f"weighted_{name}" if name in known else name
            counts = weighted or isinstance(metric, MeanLoss)
            self._entries.append(_Entry(name=shown, output=output, metric=metric, weighted=counts))

    def _add_compiled(self, labels: Any, predictions: Any) -> None:
        """Add the metrics of a compiled model; those of functions in the file, if there are any, count instead."""
        compiled, has_own_metrics = self._module.compiled, bool(self._entries[1:])
        if compiled is None:
            return
        if self._module.value("loss") is None:
            losses = dict(compiled.losses(labels, predictions))
            known = {entry.name for entry in self._entries}
            self._add(METRICS, {name: MeanLoss(loss, name) for name, loss in losses.items() if name not in known}, None)
        if has_own_metrics:
            return
        for output, metrics, weighted in compiled.metrics(labels, predictions):
            self._add(WEIGHTED_METRICS if weighted else METRICS, metrics, output)

    def _metric(self, function: str, name: str, value: Any) -> Any:
        if isinstance(value, keras.metrics.Metric):
            return value
        if callable(value) and not isinstance(value, type):
            return FunctionMetric(value, name)
        raise UserError(
            f"{self._module.path}: metric {name!r} must be a Keras metric or a function, not {value!r}",
            hint=f"Correct {function}().",
        )


def _is_known(metric: Any) -> bool:
    return isinstance(metric, FunctionMetric | MeanLoss) or type(metric).__module__.startswith("keras.")


def _shaken(prediction: Any, random: np.random.Generator) -> Any:
    """Other predictions of the same shape, still probabilities where they were."""
    values = np.asarray(prediction)
    if not np.issubdtype(values.dtype, np.floating):
        return prediction
    return tf.constant((values[::-1] * random.uniform(0.3, 1.0, values.shape)).astype(values.dtype))


def flatten_result(name: str, result: Any) -> Iterator[tuple[str, float]]:
    """The numbers in the result of a metric: ``name``, ``name.0``, ``name.1``..., or the keys of a dict."""
    if isinstance(result, Mapping):
        for key, item in result.items():
            yield from flatten_result(str(key), item)
        return
    values = np.asarray(result, np.float64)
    if values.size == 1:  # Also a vector of one element, as F1Score returns for a single class.
        yield name, values.item()
    else:
        yield from ((f"{name}.{place}", float(value)) for place, value in enumerate(values.reshape(-1)))
