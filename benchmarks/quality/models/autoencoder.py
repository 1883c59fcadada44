"""64 numbers that follow from 6: a dense autoencoder with a code of 6."""

from typing import Any

import keras
from keras import ops

SIZE = 64


def custom_model() -> keras.Model:
    """The reconstruction, (batch, 64)."""
    pixels = keras.Input((SIZE,))
    x = keras.layers.Dense(32, activation="relu")(pixels)
    x = keras.layers.Dense(6, activation="relu")(x)
    x = keras.layers.Dense(32, activation="relu")(x)
    return keras.Model(pixels, keras.layers.Dense(SIZE, activation="sigmoid")(x))


def loss(labels: Any, predictions: Any) -> Any:
    return ops.mean(ops.square(labels - predictions), axis=-1)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.001)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return records["pixels"], records["pixels"]


def eval_metrics_fn() -> dict[str, Any]:
    return {}
