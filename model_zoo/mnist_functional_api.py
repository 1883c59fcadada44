"""Handwritten digits, 28 x 28: a small convolutional network in Keras' functional style.

    elasticdl zoo data mnist mnist
    elasticdl train --model_def=mnist_functional_api.custom_model --training_data=mnist/train \
        --validation_data=mnist/test --num_epochs=30 --output=output

A record is a ``tf.train.Example`` with ``image`` (784 bytes) and ``label`` (0 to 9). The model takes raw pixels (0 to
255), so that a server of the exported model has nothing to prepare.
"""

import keras
import tensorflow as tf

SIDE = 28
CLASSES = 10
_EXAMPLE = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def custom_model(filters=32, units=128):
    """Two convolutions and two dense layers.

    Args:
        filters: of the first convolution; the second has twice as many.
        units: of the hidden dense layer.
    """
    pixels = keras.Input((SIDE, SIDE), dtype="uint8", name="pixels")
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(pixels)
    x = keras.layers.Reshape((SIDE, SIDE, 1))(x)
    x = keras.layers.AveragePooling2D(2)(x)
    x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu", kernel_initializer="he_normal")(x)
    x = keras.layers.Conv2D(2 * filters, 3, activation="relu", kernel_initializer="he_normal")(x)
    x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dropout(0.3)(x)
    x = keras.layers.Dense(units, activation="relu")(x)
    return keras.Model(pixels, keras.layers.Dense(CLASSES, activation="softmax")(x), name="mnist")


def loss(labels, predictions):
    """Cross-entropy of each record, (batch,)."""
    return keras.losses.sparse_categorical_crossentropy(labels, predictions)


def optimizer():
    """Adam with a rate that falls by a fifth every 100 updates; clipped, as gradients come a little late."""
    rate = keras.optimizers.schedules.ExponentialDecay(0.0015, decay_steps=100, decay_rate=0.8)
    return keras.optimizers.Adam(rate, global_clipnorm=1.0)


def feed(dataset, mode, metadata):
    """Record by record, with ``tf.data``."""

    def decode(record):
        example = tf.io.parse_single_example(record, _EXAMPLE)
        pixels = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), (SIDE, SIDE))
        return pixels, example["label"]

    return dataset.map(decode)


def feed_batch(records, mode, metadata):
    """The same for a whole batch at once: the fast path, taken wherever a model file defines it.

    Digits to learn from are moved by up to two pixels, each batch another way; the example data is small.
    """
    examples = tf.io.parse_example(records, _EXAMPLE)
    pixels = tf.reshape(tf.io.decode_raw(examples["image"], tf.uint8, fixed_length=SIDE * SIDE), (-1, SIDE, SIDE))
    if mode == "train":
        # Chance that is drawn from the records themselves: a batch that is computed twice gives the same bits twice.
        seed = tf.stack([tf.strings.to_hash_bucket_fast(tf.strings.reduce_join(records), 1 << 31), 0])
        padded = tf.pad(pixels, [[0, 0], [2, 2], [2, 2]])
        pixels = tf.image.stateless_random_crop(padded, tf.shape(pixels), seed)
    return pixels, examples["label"]


def eval_metrics_fn():
    """Metrics of evaluation."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
