"""What the generated model file of a statement defines: the functions of a model file, from saved features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from elasticdl.shared.errors import UserError
from elasticdl.sql.columns.features import Features
from elasticdl.sql.network.catalogue import TRAINING
from elasticdl.sql.network.encoding import Encoder
from elasticdl.sql.network.networks import NETWORKS, own

OUTPUT = "prediction"
"""Name of the model's output."""
_MODEL_ARGUMENTS = {*TRAINING, "steps"}
"""Arguments that are not the network's."""


class Definition:
    """The functions of a model file.

    Args:
        text: the features, as JSON.
        network: class or function of a file; None: the features name one of the catalogue.
    """

    def __init__(self, text: str, network: Callable[..., Any] | None = None) -> None:
        self.features = Features.of_json(text)
        self._network = network
        self.label = self.features.label.name
        self.class_weight = self._class_weight()

    @property
    def units(self) -> int:
        """Scores of a record: one, except for three or more classes."""
        classes = len(self.features.label.classes)
        return classes if classes > 2 else 1

    def custom_model(self) -> Any:
        """The model: inputs named after columns -> probabilities, or a number in the units of the label."""
        encoder = Encoder(self.features)
        arguments = {name: value for name, value in self.features.arguments.items() if name not in _MODEL_ARGUMENTS}
        parts = (encoder, self.features.features, self.units)
        if self._network is not None:
            scores = own(self._network, *parts, arguments)
        else:
            scores = NETWORKS[self.features.network](*parts, arguments)
        if scores is None:
            raise UserError("the network has no features", hint="Name some with COLUMN, or add columns to the SELECT.")
        return keras.Model(encoder.inputs, self._output(scores), name="sql_model")

    def loss(self, labels: Any, predictions: Any) -> Any:
        """Cross-entropy; or the squared error in units of the label's variance, so that it does not depend on them."""
        if self.features.task == "regression":
            scale = self.features.label.scale
            return ops.mean(ops.square((ops.cast(labels, "float32") - predictions) / scale), axis=-1)
        if self.units == 1:
            return keras.losses.binary_crossentropy(labels, predictions)
        return keras.losses.sparse_categorical_crossentropy(labels, predictions)

    def optimizer(self) -> Any:
        """By name, with a rate that decays to 0 over the job's steps."""
        arguments = self.features.arguments
        rate = float(arguments["learning_rate"])
        steps = int(arguments.get("steps", 0))
        schedule: Any = keras.optimizers.schedules.CosineDecay(rate, steps) if steps else rate
        return keras.optimizers.get({"class_name": arguments["optimizer"], "config": {"learning_rate": schedule}})

    def eval_metrics_fn(self) -> Mapping[str, Any]:
        """Metrics: accuracy (and AUC for two classes), or absolute error, root of squared error and R2."""
        if self.features.task == "regression":
            label = self.features.label
            return {
                "mean_absolute_error": keras.metrics.MeanAbsoluteError(),
                "root_mean_squared_error": keras.metrics.RootMeanSquaredError(),
                "r2": ScaledR2(label.shift, label.scale),
            }
        if self.units == 1:
            return {"accuracy": keras.metrics.BinaryAccuracy(), "auc": keras.metrics.AUC(num_thresholds=1000)}
        return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}

    def _output(self, scores: Any) -> Any:
        label = self.features.label
        if self.features.task == "regression":
            return keras.layers.Rescaling(label.scale, label.shift, name=OUTPUT)(scores)
        return keras.layers.Activation("sigmoid" if self.units == 1 else "softmax", name=OUTPUT)(scores)

    def _class_weight(self) -> dict[int, float] | None:
        counts = self.features.label.counts
        if self.features.arguments.get("class_weight") != "balanced" or not counts:
            return None
        return {place: sum(counts) / (len(counts) * max(number, 1)) for place, number in enumerate(counts)}


class ScaledR2(keras.metrics.R2Score):  # type: ignore[misc]
    """R2 of labels less their mean: float32 sums of large squares would not be exact."""

    def __init__(self, shift: float = 0.0, scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shift = shift
        self.scale = scale

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add records."""
        scaled = [(ops.cast(values, "float32") - self.shift) / self.scale for values in (y_true, y_pred)]
        super().update_state(*scaled, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "shift": self.shift, "scale": self.scale}
