"""Will a user click? DeepFM (Guo et al., 2017) over 13 numbers and 26 categories, in the shape of Criteo's logs.

    elasticdl zoo data deepfm clicks
    elasticdl train --model_def=deepfm.custom_model --training_data=clicks/train --validation_data=clicks/test \
        --minibatch_size=512 --output=output

The example data is generated; its ``about.json`` holds the best possible AUC.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

LABEL = "label"
NUMBERS = [f"i{place}" for place in range(1, 14)]
CATEGORIES = [f"c{place}" for place in range(1, 27)]


def custom_model(ids_per_category=25_000, width=16, hidden=(400, 400, 400)):
    """Linear part + factorisation machine + deep part, added up.

    All categories share two tables, each with a stretch of rows of its own, so that a batch needs two look-ups and not
    52. An id beyond its stretch is folded back into it.

    Args:
        ids_per_category: rows of each category's stretch; with 25,000 both tables exceed the 2 MiB from which on
            parameter servers keep them by rows, and a batch moves only the rows that it needs.
        width: of the embeddings.
        hidden: units of the deep part's layers.
    """
    numbers = keras.Input((len(NUMBERS),), name="numbers")
    categories = keras.Input((len(CATEGORIES),), dtype="int64", name="categories")
    offsets = np.arange(len(CATEGORIES), dtype=np.int64) * ids_per_category
    rows = ops.add(ops.mod(categories, ids_per_category), offsets)
    table = len(CATEGORIES) * ids_per_category
    weights = keras.layers.Embedding(table, 1, embeddings_initializer="zeros", name="id_weight")(rows)
    vectors = keras.layers.Embedding(
        table, width, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.01), name="id_vector"
    )(rows)

    linear = ops.sum(weights, axis=1) + keras.layers.Dense(1, name="number_weight")(numbers)
    pairs = ops.square(ops.sum(vectors, axis=1)) - ops.sum(ops.square(vectors), axis=1)
    factorised = 0.5 * ops.sum(pairs, axis=-1, keepdims=True)
    x = keras.layers.Concatenate()([keras.layers.Flatten()(vectors), numbers])
    for units in hidden:
        x = keras.layers.Dense(units, activation="relu")(x)
    deep = keras.layers.Dense(1, use_bias=False, name="deep_score")(x)
    probability = ops.sigmoid(linear + factorised + deep)
    return keras.Model({"numbers": numbers, "categories": categories}, probability, name="deepfm")


def loss(labels, predictions):
    """Cross-entropy of each record, (batch,)."""
    return keras.losses.binary_crossentropy(labels, predictions)


def optimizer():
    """Adam for batches of 512; its rate falls by 40 % every 200 updates, which halves the distance to the optimum."""
    return keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.002, decay_steps=200, decay_rate=0.6))


def feed_batch(records, mode, metadata):
    """Numbers (batch, 13), categories (batch, 26) and the label (batch, 1)."""
    features = {
        "numbers": tf.stack([tf.cast(records[name], tf.float32) for name in NUMBERS], axis=1),
        "categories": tf.stack([tf.cast(records[name], tf.int64) for name in CATEGORIES], axis=1),
    }
    if mode == "predict":
        return features
    return features, tf.cast(records[LABEL], tf.float32)[:, tf.newaxis]


def eval_metrics_fn():
    """Metrics of evaluation; with 1,000 thresholds the AUC is exact to about 0.0005."""
    return {"auc": keras.metrics.AUC(num_thresholds=1000), "log_loss": keras.metrics.BinaryCrossentropy()}
