"""What ``compile()`` has given a model: its loss, metrics and optimizer, for model files without these functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.trainers.compile_utils import CompileMetrics, MetricsList  # Keras has no public name for these.

from elasticdl.shared.errors import UserError
from elasticdl.shipping.pickling import copied
from elasticdl.worker.model.user.calls import user_code


class OutputMetrics(NamedTuple):
    """The metrics of one output.

    Attributes:
        output: its name; None if there is only one.
    """

    output: str | None
    metrics: dict[str, Any]
    weighted: bool


@dataclass(frozen=True, slots=True)
class OutputLoss:
    """The loss of one output, without the factor that ``loss_weights`` gives it.

    Attributes:
        packed: brings labels or sample weights into that structure.
    """

    loss: Any
    path: Sequence[Any]
    packed: Callable[[Any], Any]

    def __call__(self, labels: Any, predictions: Any, sample_weight: Any = None) -> Any:
        """The mean over a batch, a scalar."""
        if keras.tree.is_nested(sample_weight):
            sample_weight = self._of(self.packed(sample_weight))
        return self.loss(self._of(self.packed(labels)), self._of(predictions), sample_weight)

    def _of(self, structure: Any) -> Any:
        for key in self.path:
            structure = structure[key]
        return structure


def _outputs_of(given: Any, outputs: Sequence[str]) -> frozenset[str]:
    """The outputs for which an argument of ``compile()`` gives something, which is one for all, a list or a dict."""
    if isinstance(given, Mapping):
        return frozenset(name for name, one in given.items() if one is not None)
    if isinstance(given, list | tuple) and len(given) == len(outputs):
        return frozenset(name for name, one in zip(outputs, given, strict=True) if one is not None and one != [])
    return frozenset(outputs) if given else frozenset()


def _is_dense(loss: Any) -> bool:
    """Whether a loss is one of Keras', and takes no numbers of classes."""
    name = getattr(loss, "__name__", type(loss).__name__)
    return str(getattr(loss, "__module__", "")).startswith("keras.") and "sparse" not in name.lower()


class Compiled:
    """A compiled model."""

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

    def unlabelled(self, outputs: Sequence[str]) -> frozenset[str]:
        """Those of the outputs that have neither a loss nor a metric, so ``fit()`` needs no label for them."""
        compiled = self._model._compile_metrics
        given = [self._model._compile_loss._user_loss] if self.has_loss else []
        given += [compiled._user_metrics, compiled._user_weighted_metrics] if compiled is not None else []
        return frozenset(outputs).difference(*(_outputs_of(each, outputs) for each in given))

    def one_hot(self, outputs: Sequence[str]) -> frozenset[str]:
        """Those of the outputs whose loss is one of Keras' that compares a number for each class."""
        return frozenset(name for place, name in enumerate(outputs) if _is_dense(self.loss_of(place, name)))

    def loss_of(self, place: int, name: str) -> Any:
        """The loss of one output, a function or an object of Keras; None: it has none, or none that Keras knows.

        Args:
            place: of the output, in the order of the outputs.
        """
        given = self._model._compile_loss._user_loss if self.has_loss else None
        if isinstance(given, Mapping):
            given = given.get(name)
        elif isinstance(given, list | tuple):
            given = given[place] if place < len(given) else None
        try:
            return keras.losses.get(given) if isinstance(given, str) else given if callable(given) else None
        except ValueError:
            return None  # Keras says so when it builds the losses.

    def losses(self, labels: Any, predictions: Any) -> Iterator[tuple[str, OutputLoss]]:
        """The loss of each output by the name that ``fit()`` reports, such as ``a_loss``; none for one output."""
        total = self._model._compile_loss
        if total is None or not keras.tree.is_nested(predictions):
            return
        names, flat = tuple(total.output_names or ()), len(keras.tree.flatten(predictions))
        if len(keras.tree.flatten(self._with_gaps(labels))) != flat:
            return

        def packed(given: Any) -> Any:
            """Labels or weights in the structure of the predictions, as Keras packs them."""
            if isinstance(given, Mapping) and not isinstance(predictions, Mapping):
                given = [given[name] for name in names]
            return keras.tree.pack_sequence_as(predictions, keras.tree.flatten(self._with_gaps(given)))

        self._build_loss(packed(labels), predictions)
        if len(total._flat_losses) > 1:
            for path, loss, _, name in total._flat_losses:
                yield f"{name}_loss", OutputLoss(loss, path, packed)

    def loss(self, labels: Any, predictions: Any, sample_weight: Any = None) -> Any:
        """The weighted sum of the losses of all outputs, a scalar, as in ``fit()``; without regularizers."""
        loss = self._model._compile_loss
        if loss is None:
            return tf.zeros(())
        self._build_loss(labels, predictions)
        return loss(labels, predictions, sample_weight)

    def _build_loss(self, labels: Any, predictions: Any) -> None:
        if not self._model._compile_loss.built:
            with tf.init_scope(), user_code(self._path, "loss of compile()"):
                self._model._compile_loss.build(self._with_gaps(labels), predictions)

    def _with_gaps(self, given: Any) -> Any:
        """Labels or weights with None for outputs without a loss; ``fit()`` takes them without these, too."""
        losses = self._model._compile_loss._user_loss
        places = [place for place, loss in enumerate(losses) if loss is not None] if isinstance(losses, list) else []
        flat = keras.tree.flatten(given)
        if not places or len(places) == len(losses) or len(flat) != len(places):
            return given
        found = dict(zip(places, flat, strict=True))
        return [found.get(place) for place in range(len(losses))]

    def metrics(self, labels: Any, predictions: Any) -> Iterator[OutputMetrics]:
        """New metrics of each output; ``labels`` as fed decide with the predictions what ``"accuracy"`` means."""
        compiled = self._model._compile_metrics
        if compiled is None:
            return
        user = (compiled._user_metrics, compiled._user_weighted_metrics)
        metrics = CompileMetrics(
            *(keras.tree.map_structure(self._fresh, each, none_is_leaf=False) for each in user),
            output_names=compiled.output_names,
        )
        with user_code(self._path, "metrics of compile()"):  # A name may be that of no metric.
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
            try:
                fresh = copied(metric)  # A class of a script seldom has a get_config().
                fresh.reset_state()
            except (UserError, TypeError, ValueError, AttributeError):
                raise UserError(
                    f"{self._path}: metric {metric.name!r} can't be made again from its get_config(): {error}",
                    hint="Correct its get_config(), or return the metric from eval_metrics_fn() instead.",
                ) from error
            return fresh
