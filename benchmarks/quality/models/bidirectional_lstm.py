"""Which of two classes a text of 40 words has: a bidirectional LSTM."""

from typing import Any

import keras
import tensorflow as tf

VOCABULARY, LENGTH = 2000, 40


def custom_model() -> keras.Model:
    """Probability of class 1, (batch, 1)."""
    words = keras.Input((LENGTH,), dtype="int64")
    x = keras.layers.Embedding(VOCABULARY, 32)(words)
    x = keras.layers.Bidirectional(keras.layers.LSTM(32))(x)
    return keras.Model(words, keras.layers.Dense(1, activation="sigmoid")(x))


def loss(labels: Any, predictions: Any) -> Any:
    return keras.losses.binary_crossentropy(labels, predictions)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.002)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return records["words"], tf.cast(records["label"], tf.float32)[:, tf.newaxis]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": keras.metrics.BinaryAccuracy()}
