"""What ``compile()`` has given a model: its loss, metrics and optimizer, for model files without these functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.trainers.compile_utils import CompileMetrics, MetricsList  # Keras has no public name for these.

from elasticdl.shared.errors import UserError


class OutputMetrics(NamedTuple):
    """The metrics of one output.

    Attributes:
        output: its name; None if there is only one.
        metrics: by name.
        weighted: whether sample weights count.
    """

    output: str | None
    metrics: dict[str, Any]
    weighted: bool


class Compiled:
    """A compiled model.

    Args:
        model: compiled.
        path: the model file, named in errors.
    """

    def __init__(self, model: Any, path: Path) -> None:
        self._model = model
        self._path = path

    def optimizer(self) -> Any:
        """The optimizer that ``compile()`` was given, or has made of a name."""
        return self._model.optimizer

    @property
    def has_loss(self) -> bool:
        """Whether ``compile()`` was given a loss. Without one, what layers add with ``add_loss()`` is all."""
        return self._model._compile_loss is not None

    def loss(self, labels: Any, predictions: Any, sample_weight: Any = None) -> Any:
        """The weighted sum of the losses of all outputs, a scalar, as in ``fit()``; without regularizers."""
        loss = self._model._compile_loss
        if loss is None:
            return tf.zeros(())
        if not loss.built:
            with tf.init_scope():
                loss.build(labels, predictions)
        return loss(labels, predictions, sample_weight)

    def metrics(self, labels: Any, predictions: Any) -> Iterator[OutputMetrics]:
        """New objects for the metrics of each output.

        Args:
            labels: as fed; decides with the predictions what ``"accuracy"`` means.
            predictions: as the model gives them.

        Raises:
            UserError: a metric can't be made again from its configuration.
        """
        compiled = self._model._compile_metrics
        if compiled is None:
            return
        user = (compiled._user_metrics, compiled._user_weighted_metrics)
        metrics = CompileMetrics(
            *(keras.tree.map_structure(self._fresh, each, none_is_leaf=False) for each in user),
            output_names=compiled.output_names,
        )
        metrics.build(labels, predictions)
        for flat, weighted in ((metrics._flat_metrics, False), (metrics._flat_weighted_metrics, True)):
            for each in flat:
                if isinstance(each, MetricsList):
                    prefix = f"{each.output_name}_" if each.output_name else ""
                    found = {f"{prefix}{metric.name}": metric for metric in each.metrics if metric is not None}
                    yield OutputMetrics(each.output_name, found, weighted)

    def _fresh(self, metric: Any) -> Any:
        """A metric without the state of another one; names and functions stay as they are."""
        if not isinstance(metric, keras.metrics.Metric):
            return metric
        if type(metric) is keras.metrics.MeanMetricWrapper:
            return keras.metrics.MeanMetricWrapper(metric._fn, name=metric.name, **metric._fn_kwargs)
        try:
            return type(metric).from_config(metric.get_config())
        except (TypeError, ValueError, NotImplementedError) as error:
            raise UserError(
                f"{self._path}: metric {metric.name!r} can't be made again from its get_config(): {error}",
                hint="Correct its get_config(), or return the metric from eval_metrics_fn() instead.",
            ) from error
