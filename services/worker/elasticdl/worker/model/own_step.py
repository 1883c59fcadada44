"""Training and evaluation by the own ``train_step()`` and ``test_step()`` of a model, see ``shipping.own_steps``.

What such a step returns becomes sums that add up over batches: the states of those metrics of Keras whose results it
returns, and for all other values their mean over records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.metric_states import MetricArrays
from elasticdl.shipping.own_steps import (
    LOSS,
    Trial,
    check_optimizers,
    has_own_step,
    metrics_of,
    overrides,
    record,
    run_step,
    try_step,
)
from elasticdl.shipping.pickling import copied
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.metrics import MetricSet, flatten_result
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.module import UserModule

Doubles = NDArray[np.float64]
Pairs = Iterable[tuple[Any, Any]]
"""Variables and the values that they get."""
_TRAINING, _TESTING = "train_step", "test_step"


class StepResults:
    """What a step returns, as sums: loss, states of metrics, means of other values. The counterpart of ``MetricSet``.

    Args:
        method: ``train_step`` or ``test_step``; tells its states from those of the other one.
    """

    begins_with_zeros = True

    def __init__(self, trial: Trial, method: str) -> None:
        self._keys = {name: key for name, key in trial.names.items() if key is not None and _adds_up(key[0])}
        self._metrics = list({id(metric): metric for metric, _ in self._keys.values()}.values())
        self._plain = [name for name in trial.names if name not in self._keys]
        self._copies = [copied(metric) for metric in self._metrics]
        """Other processes' states become results in these."""
        self._loss = next((n for n in (LOSS, *filter(_is_loss, trial.names), *trial.names) if n in trial.names), "")
        self._sizes = [
            (f"{method} {LOSS}", [(2,)]),
            *((f"{method} {n}", [tuple(v.shape) for v in m.variables]) for n, m in enumerate(self._metrics)),
            *((f"{method} {name}", [(2,)]) for name in self._plain),
        ]
        self.names = tuple(dict.fromkeys((LOSS, *trial.names)))
        self._sum = np.zeros(self._count, np.float64)

    @property
    def directions(self) -> dict[str, str]:
        """See ``MetricSet.directions``."""
        known = {name: getattr(metric, "_direction", "") or "" for name, (metric, _) in self._keys.items()}
        return {name: "down" if _is_loss(name) else known.get(name, "") for name in self.names}

    def flat_states(self, logs: Mapping[str, Any], records: Any) -> tuple[Any, Any]:
        """The loss, a scalar, and the states, float64 (sizes of all,), of a step whose metrics began with zeros."""
        count = tf.cast(records, tf.float64)

        def mean(value: Any) -> Any:
            number = tf.reduce_mean(tf.cast(tf.convert_to_tensor(value), tf.float64))
            return tf.stack([number * count, count])

        loss = mean(logs[self._loss]) if self._loss else tf.stack([0.0 * count, count])
        variables = [variable for metric in self._metrics for variable in metric.variables]
        states = [tf.reshape(tf.cast(one.value, tf.float64), [-1]) for one in variables]
        return tf.cast(loss[0] / count, tf.float32), tf.concat(
            [loss, *states, *(mean(logs[name]) for name in self._plain)], 0
        )

    def split(self, values: Doubles) -> MetricArrays:
        """See ``MetricSet.split``."""
        if values.size != self._count:
            raise UserError(f"the metrics have {self._count} state values, but {values.size} were summed")
        arrays: dict[str, list[Doubles]] = {}
        start = 0
        for key, shapes in self._sizes:
            arrays[key] = []
            for shape in shapes:
                end = start + math.prod(shape)
                arrays[key].append(values[start:end].reshape(shape))
                start = end
        return arrays

    def holds(self, states: MetricArrays) -> bool:
        """Whether states are those of this step."""
        return states.keys() == dict(self._sizes).keys()

    def results(self, states: MetricArrays) -> dict[str, float]:
        """See ``MetricSet.results``."""
        parts = [states[key] for key, _ in self._sizes]
        means = {name: _mean(part[0]) for name, part in zip(self._plain, parts[1 + len(self._metrics) :], strict=True)}
        found = {}
        for metric, arrays in zip(self._copies, parts[1:], strict=False):
            for variable, array in zip(metric.variables, arrays, strict=True):
                variable.assign(array.reshape(variable.shape).astype(variable.dtype))
            found[metric] = metric.result()
        results = {LOSS: _mean(parts[0][0])}
        numbers = {id(metric): number for number, metric in enumerate(self._metrics)}
        for name in self.names:
            if name in means:
                results[name] = means[name]
            elif name in self._keys:
                metric, key = self._keys[name]
                result = found[self._copies[numbers[id(metric)]]]
                results |= dict(flatten_result(name, result[key] if isinstance(result, Mapping) else result))
        return results

    def add(self, values: Doubles) -> None:
        """Add the states of a batch."""
        self._sum += values

    def states(self) -> MetricArrays:
        """The sums since the last reset."""
        return self.split(self._sum.copy())

    def reset(self) -> None:
        """Begin with zeros again."""
        self._sum[:] = 0.0

    @property
    def _count(self) -> int:
        return sum(math.prod(shape) for _, shapes in self._sizes for shape in shapes)


class MergedResults:
    """Results of summed states, be they of the training or of an evaluation."""

    def __init__(self, training: StepResults, evaluation: StepResults | MetricSet) -> None:
        self._training, self._evaluation = training, evaluation

    @property
    def names(self) -> tuple[str, ...]:
        """See ``MetricSet``: of an evaluation."""
        return self._evaluation.names

    @property
    def directions(self) -> dict[str, str]:
        """See ``MetricSet``."""
        return {**self._training.directions, **self._evaluation.directions}

    def split(self, values: Doubles) -> MetricArrays:
        """See ``MetricSet``: of the training."""
        return self._training.split(values)

    def results(self, states: MetricArrays) -> dict[str, float]:
        """See ``MetricSet``."""
        return (self._training if self._training.holds(states) else self._evaluation).results(states)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStep:
    """A model with a ``train_step()`` of its own, built.

    Attributes:
        optimizer: the one that the step applies, or the model's own one of several.
        movers: by the ``id()`` of a variable: the optimizer that the step applies to it.
        assigned: the weights that it assigns.
        results: of ``train_step()``.
        evaluation: of ``test_step()``; None: the model has Keras' own.
    """

    model: Any
    optimizer: Any
    movers: Mapping[int, Any]
    assigned: tuple[Any, ...]
    results: StepResults
    evaluation: StepResults | None
    has_labels: bool

    @classmethod
    def of(cls, module: UserModule, model: Any, example: Batch, *, replicated: bool = False) -> OwnStep | None:
        """Try out the steps of a model; None: it has none of its own.

        Args:
            replicated: it may have several optimizers.

        Raises:
            UserError: a step is one that no worker can run.
            UserCodeError: a step raised.
        """
        if not has_own_step(model):
            return None
        check_optimizers(model, replicated=replicated)
        if not model.compiled:
            if module.value("optimizer") is None:
                raise UserError(
                    f"{module.path}: the model is not compiled", hint="Call its compile(), or define optimizer()."
                )
            model.compile(module.make_optimizer(), loss=module.function("loss"))
        given = (example.features, example.labels if example.spec.has_labels else None, example.weights)
        with user_code(module.path, f"{_TRAINING}()"):
            trial = try_step(model, _TRAINING, *given)
        if not trial.optimizers or (len(trial.optimizers) > 1 and not replicated):
            count = f"applies {len(trial.optimizers)} optimizers" if trial.optimizers else "applies no optimizer"
            raise UserError(
                f"{module.path}: {_TRAINING}() {count}",
                hint="Compute gradients with tf.GradientTape, and give them to self.optimizer.apply(gradients, "
                "variables), once.",
            )
        evaluation = None
        if overrides(model, _TESTING):
            with user_code(module.path, f"{_TESTING}()"):
                evaluation = StepResults(try_step(model, _TESTING, *given), _TESTING)
        return cls(
            model=model,
            optimizer=next((one for one in trial.optimizers if one is model.optimizer), trial.optimizers[0]),
            movers=trial.movers,
            assigned=trial.assigned,
            results=StepResults(trial, _TRAINING),
            evaluation=evaluation,
            has_labels=example.spec.has_labels,
        )

    @property
    def has_several(self) -> bool:
        """Whether the step applies several optimizers."""
        return len({id(one) for one in self.movers.values()}) > 1

    @property
    def variables(self) -> list[Any]:
        """All variables that a step gets values for, or sets to zero."""
        return [*self.model.variables, *(one for metric in metrics_of(self.model) for one in metric.variables)]

    @property
    def is_evaluated_by_keras(self) -> bool:
        """Whether evaluations call the model, and compare what it gives with the labels."""
        return self.evaluation is None and overrides(self.model, "call") and self.has_labels

    def metrics(self, *, evaluated: MetricSet, merged: MetricSet) -> dict[str, Any]:
        """The accumulators for each purpose, given those that serve evaluations by Keras' own ``test_step()``."""
        merged_with = self.evaluation or merged
        evaluation = self.evaluation or evaluated
        return {"train": self.results, "evaluate": evaluation, "merge": MergedResults(self.results, merged_with)}

    def train(
        self, values: Pairs, features: Any, labels: Any, weights: Any, scale: Any, trainable: list[Any]
    ) -> tuple[Any, list[Any], Any]:
        """One training step with these values of variables: loss, gradients and states of the results.

        Args:
            scale: of the loss, for float16; None: it is not scaled.
        """
        self._begin(values)
        with record(self.model, scale) as recording:
            logs = run_step(self.model, _TRAINING, features, labels if self.has_labels else None, weights)
        gradients = recording.gradients(trainable)
        loss, states = self.results.flat_states(logs, _records(features))
        return loss, gradients, states

    def evaluate(self, values: Pairs, features: Any, labels: Any, weights: Any) -> tuple[Any, Any]:
        """One evaluation step: loss and states of the results."""
        assert self.evaluation is not None
        self._begin(values)
        logs = run_step(self.model, _TESTING, features, labels if self.has_labels else None, weights)
        return self.evaluation.flat_states(logs, _records(features))

    def _begin(self, values: Pairs) -> None:
        for variable, value in values:
            variable.assign(value)
        for metric in metrics_of(self.model):
            metric.reset_state()


def _records(features: Any) -> Any:
    return tf.shape(tf.nest.flatten(features)[0])[0]


def _adds_up(metric: Any) -> bool:
    """Whether states of a metric add up: those of Keras do that begin with zeros."""
    is_known = type(metric).__module__.startswith("keras.")
    metric.reset_state()
    return is_known and not any(np.any(variable.numpy()) for variable in metric.variables)


def _is_loss(name: str) -> bool:
    return "loss" in name


def _mean(sums: Doubles) -> float:
    total, count = sums.tolist()
    return total / count if count else 0.0
