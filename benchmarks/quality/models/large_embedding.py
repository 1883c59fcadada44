"""Which of two classes a set of 8 ids has, out of 300,000: a table of 300,000 x 32, trained with Adam."""

from typing import Any

import keras
import tensorflow as tf

IDS, WIDTH, PER_RECORD = 300_000, 32, 8


def custom_model() -> keras.Model:
    """Probability of class 1, (batch, 1)."""
    ids = keras.Input((PER_RECORD,), dtype="int64")
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(IDS, WIDTH)(ids))
    x = keras.layers.Dense(16, activation="relu")(x)
    return keras.Model(ids, keras.layers.Dense(1, activation="sigmoid")(x))


def loss(labels: Any, predictions: Any) -> Any:
    return keras.losses.binary_crossentropy(labels, predictions)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.002)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return records["ids"], tf.cast(records["label"], tf.float32)[:, tf.newaxis]


def eval_metrics_fn() -> dict[str, Any]:
    return {"auc": keras.metrics.AUC(num_thresholds=1000)}
