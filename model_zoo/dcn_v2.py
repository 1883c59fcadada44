"""Predicts clicks: DCN-V2 (Wang et al., 2021) over 13 numbers and 26 categories, in the shape of Criteo's logs.

    elasticdl zoo data deepfm clicks
    elasticdl train --model_def=dcn_v2.custom_model --training_data=clicks/train --validation_data=clicks/test \
        --minibatch_size=512 --output=output

It takes the same data as ``deepfm.py``; its ``about.json`` holds the best possible AUC.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

LABEL = "label"
NUMBERS = [f"i{place}" for place in range(1, 14)]
CATEGORIES = [f"c{place}" for place in range(1, 27)]


@keras.saving.register_keras_serializable("dcn_v2")
class Cross(keras.layers.Layer):
    """One cross layer: x0 * (V U x + b) + x, its matrix being the product of two narrow ones.

    Args:
        rank: columns of U.
    """

    def __init__(self, rank, **kwargs):
        super().__init__(**kwargs)
        self.rank = rank
        self.narrow = keras.layers.Dense(rank, use_bias=False)

    def build(self, x0_shape, x_shape):
        """Make the variables for inputs of shape (batch, width)."""
        self.narrow.build(x_shape)
        self.wide = keras.layers.Dense(x_shape[-1])
        self.wide.build((*x_shape[:-1], self.rank))

    def call(self, x0, x):
        """The next x, (batch, width)."""
        return x0 * self.wide(self.narrow(x)) + x

    def get_config(self):
        """Arguments of the constructor."""
        return super().get_config() | {"rank": self.rank}


def custom_model(ids_per_category=25_000, width=16, crosses=3, rank=64, hidden=(256, 256)):
    """Cross layers and a deep part beside each other.

    All categories share one table, each with a stretch of rows of its own. An id beyond its stretch is folded back
    into it.

    Args:
        ids_per_category: rows of each category's stretch; with 25,000 the table exceeds the 2 MiB from which on
            parameter servers keep it by rows, and a batch moves only the rows that it needs.
        width: of the embeddings.
        crosses: number of cross layers.
        rank: of their matrices.
        hidden: units of the deep part's layers.
    """
    numbers = keras.Input((len(NUMBERS),), name="numbers")
    categories = keras.Input((len(CATEGORIES),), dtype="int64", name="categories")
    offsets = np.arange(len(CATEGORIES), dtype=np.int64) * ids_per_category
    rows = ops.add(ops.mod(categories, ids_per_category), offsets)
    vectors = keras.layers.Embedding(
        len(CATEGORIES) * ids_per_category,
        width,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=0.01),
        name="id_vector",
    )(rows)

    x0 = keras.layers.Concatenate()([keras.layers.Flatten()(vectors), numbers])
    crossed, deep = x0, x0
    for number in range(crosses):
        crossed = Cross(rank, name=f"cross_{number + 1}")(x0, crossed)
    for units in hidden:
        deep = keras.layers.Dense(units, activation="relu")(deep)
    both = keras.layers.Concatenate()([crossed, deep])
    probability = keras.layers.Dense(1, activation="sigmoid", name="probability")(both)
    return keras.Model({"numbers": numbers, "categories": categories}, probability, name="dcn_v2")


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
