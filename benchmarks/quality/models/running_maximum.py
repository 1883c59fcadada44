"""A number from 16 numbers: inputs are scaled by the greatest value so far, then normalized by fast moving averages.

The second element of the prediction is the greatest value that the layer has seen. Its true value is the maximum of the
training data.
"""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable("quality")
class ScaleByMaximum(keras.layers.Layer):  # type: ignore[misc]
    """Divides by the running maximum, which it keeps in a non-trainable weight."""

    def build(self, shape: Any) -> None:
        self.maximum = self.add_weight(shape=(), initializer="ones", trainable=False, name="maximum")

    def call(self, numbers: Any, training: bool = False) -> Any:
        """Scaled numbers, and the maximum once per record (batch, 1)."""
        if training:
            self.maximum.assign(ops.maximum(self.maximum, ops.max(ops.abs(numbers))))
        return numbers / self.maximum, ops.zeros_like(numbers[:, :1]) + self.maximum


def custom_model() -> keras.Model:
    """The number and the running maximum, (batch, 2)."""
    numbers = keras.Input((16,))
    x, maximum = ScaleByMaximum()(numbers)
    x = keras.layers.Dense(32, activation="relu")(x)
    x = keras.layers.BatchNormalization(momentum=0.1)(x)
    return keras.Model(numbers, ops.concatenate([keras.layers.Dense(1)(x), maximum], axis=-1))


def loss(labels: Any, predictions: Any) -> Any:
    return ops.square(labels[:, 0] - predictions[:, 0])


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.01)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return records["numbers"], records["target"][:, None]


def eval_metrics_fn() -> dict[str, Any]:
    return {"maximum": _maximum}


def _maximum(labels: Any, predictions: Any) -> Any:
    """The running maximum, for each record."""
    return predictions[:, 1]
