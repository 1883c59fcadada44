"""Which of two classes a text of 40 words has: a Transformer of one block."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

VOCABULARY, LENGTH, WIDTH = 2000, 40, 32


def custom_model() -> keras.Model:
    """Probability of class 1, (batch, 1)."""
    words = keras.Input((LENGTH,), dtype="int64")
    # Ids that did not depend on an input would make the places' vectors constants.
    places = keras.layers.Embedding(LENGTH, WIDTH)(ops.arange(LENGTH, dtype="int64") + 0 * words)
    x = keras.layers.Embedding(VOCABULARY, WIDTH)(words) + places
    attended = keras.layers.MultiHeadAttention(2, WIDTH // 2, dropout=0.1)(x, x)
    x = keras.layers.LayerNormalization()(x + attended)
    hidden = keras.layers.Dense(2 * WIDTH, activation="gelu")(x)
    x = keras.layers.LayerNormalization()(x + keras.layers.Dense(WIDTH)(hidden))
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(words, keras.layers.Dense(1, activation="sigmoid")(x))


def loss(labels: Any, predictions: Any) -> Any:
    return keras.losses.binary_crossentropy(labels, predictions)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.002)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return records["words"], tf.cast(records["label"], tf.float32)[:, tf.newaxis]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": keras.metrics.BinaryAccuracy()}
