"""Which item a user takes next: two towers, trained with the softmax over the items of the batch.

The model scores all items, so that the metric looks for the right one among all of them, whatever the batch is.
"""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

USERS, ITEMS, WIDTH = 1200, 400, 16


def custom_model() -> keras.Model:
    """Scores of all items, (batch, 400)."""
    users = keras.Input((), dtype="int64")
    # Ids that did not depend on an input would make the items' vectors constants.
    items = ops.arange(ITEMS, dtype="int64") + 0 * ops.min(users)
    user = keras.layers.Dense(WIDTH)(keras.layers.Embedding(USERS, WIDTH)(users))
    item = keras.layers.Dense(WIDTH)(keras.layers.Embedding(ITEMS, WIDTH)(items))
    return keras.Model(users, 10 * ops.matmul(user, ops.transpose(item)))


def loss(labels: Any, predictions: Any) -> Any:
    """Cross-entropy of each record's own item among the items of its batch, (batch,)."""
    items = tf.cast(labels, tf.int64)  # Keras makes floats of labels.
    scores = tf.gather(predictions, items, axis=1)
    is_repeated = tf.cast(items[:, tf.newaxis] == items[tf.newaxis], tf.float32) - tf.eye(tf.size(items))
    return -tf.linalg.diag_part(tf.nn.log_softmax(scores - 1e9 * is_repeated))


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.005)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return records["user"], records["item"]


def eval_metrics_fn() -> dict[str, Any]:
    return {"top10": keras.metrics.SparseTopKCategoricalAccuracy(10)}
