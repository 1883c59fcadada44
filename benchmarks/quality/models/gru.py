"""The next value of a noisy sum of two oscillations, from 32 values: a GRU."""

from typing import Any

import keras
from keras import ops

STEPS = 32


def custom_model() -> keras.Model:
    """The next value, (batch, 1)."""
    values = keras.Input((STEPS,))
    x = keras.layers.GRU(24)(keras.layers.Reshape((STEPS, 1))(values))
    return keras.Model(values, keras.layers.Dense(1)(x))


def loss(labels: Any, predictions: Any) -> Any:
    return ops.mean(ops.square(labels - predictions), axis=-1)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.RMSprop(0.002)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return records["values"], records["next"][:, None]


def eval_metrics_fn() -> dict[str, Any]:
    return {}
