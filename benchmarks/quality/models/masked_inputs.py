"""Which of two classes a pair of texts has: a list of two inputs, padding that is masked, one embedding for both."""

from typing import Any

import keras
import tensorflow as tf

VOCABULARY, FIRST, LENGTH = 2000, 24, 40


def custom_model() -> keras.Model:
    """Probability of class 1, (batch, 1)."""
    inputs = [keras.Input((FIRST,), dtype="int64"), keras.Input((LENGTH - FIRST,), dtype="int64")]
    words = keras.layers.Embedding(VOCABULARY, 24, mask_zero=True)
    x = keras.layers.Concatenate()([keras.layers.LSTM(24)(words(each)) for each in inputs])
    x = keras.layers.Dense(16, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(x))


def loss(labels: Any, predictions: Any) -> Any:
    return keras.losses.binary_crossentropy(labels, predictions)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.002)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    words = records["words"]
    return (words[:, :FIRST], words[:, FIRST:]), tf.cast(records["label"], tf.float32)[:, tf.newaxis]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": keras.metrics.BinaryAccuracy()}
