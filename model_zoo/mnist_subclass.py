"""Handwritten digits, 28 x 28: a small convolutional network as a subclass of ``keras.Model``.

    elasticdl zoo data mnist mnist
    elasticdl train --model_def=mnist_subclass.CustomModel --training_data=mnist/train \
        --validation_data=mnist/test --num_epochs=30 --output=output

The class itself is the model function: ``--model_params="units=64"`` become arguments of its constructor.
"""

import keras
import tensorflow as tf

SIDE = 28
CLASSES = 10
_EXAMPLE = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


@keras.saving.register_keras_serializable("mnist_subclass")
class CustomModel(keras.Model):
    """Two convolutions and two dense layers.

    Registered with Keras and with a ``get_config()``, so that ``model.keras`` of the output can be loaded.

    Args:
        filters: of the first convolution; the second has twice as many.
        units: of the hidden dense layer.
        dropout: share of its inputs that is left out in training.
    """

    def __init__(self, filters=32, units=128, dropout=0.3, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.units, self.dropout = filters, units, dropout
        self.reduce = keras.layers.AveragePooling2D(2)
        self.first = keras.layers.Conv2D(filters, 3, padding="same", activation="relu", kernel_initializer="he_normal")
        self.second = keras.layers.Conv2D(2 * filters, 3, activation="relu", kernel_initializer="he_normal")
        self.pool = keras.layers.MaxPooling2D()
        self.flatten = keras.layers.Flatten()
        self.drop = keras.layers.Dropout(dropout)
        self.hidden = keras.layers.Dense(units, activation="relu")
        self.scores = keras.layers.Dense(CLASSES)

    def call(self, pixels, training=False):
        """Logits of the classes, (batch, 10), of pixels from 0 to 255, (batch, 28, 28)."""
        x = keras.ops.cast(pixels, "float32") / 127.5 - 1
        x = self.reduce(keras.ops.expand_dims(x, -1))
        x = self.flatten(self.pool(self.second(self.first(x))))
        return self.scores(self.hidden(self.drop(x, training=training)))

    def get_config(self):
        """Arguments of the constructor."""
        return super().get_config() | {"filters": self.filters, "units": self.units, "dropout": self.dropout}


def loss(labels, predictions):
    """Cross-entropy of each record, (batch,)."""
    return keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)


def optimizer():
    """Adam with a rate that falls by a fifth every 100 updates; clipped, as gradients come a little late."""
    rate = keras.optimizers.schedules.ExponentialDecay(0.0015, decay_steps=100, decay_rate=0.8)
    return keras.optimizers.Adam(rate, global_clipnorm=1.0)


def feed_batch(records, mode, metadata):
    """Pixels (batch, 28, 28) and labels (batch,)."""
    examples = tf.io.parse_example(records, _EXAMPLE)
    pixels = tf.reshape(tf.io.decode_raw(examples["image"], tf.uint8, fixed_length=SIDE * SIDE), (-1, SIDE, SIDE))
    return pixels if mode == "predict" else (pixels, examples["label"])


def eval_metrics_fn():
    """Metrics of evaluation."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
