"""A number from 16 numbers of different scale: dense layers with a BatchNormalization that forgets fast."""

from typing import Any

import keras
from keras import ops


def custom_model() -> keras.Model:
    """The number, (batch, 1)."""
    numbers = keras.Input((16,))
    x = keras.layers.BatchNormalization(momentum=0.5)(numbers)
    x = keras.layers.Dense(32, activation="relu")(x)
    x = keras.layers.BatchNormalization(momentum=0.5)(x)
    return keras.Model(numbers, keras.layers.Dense(1)(x))


def loss(labels: Any, predictions: Any) -> Any:
    return ops.mean(ops.square(labels - predictions), axis=-1)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.01)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return records["numbers"], records["target"][:, None]


def eval_metrics_fn() -> dict[str, Any]:
    return {}
