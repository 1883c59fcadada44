"""Colour images of ten classes, 32 x 32: ResNet-20 (He et al., 2016).

    elasticdl zoo data cifar10 images
    elasticdl train --model_def=cifar10_resnet20.custom_model --training_data=images/train \
        --validation_data=images/test --num_epochs=3 --output=output

The example data is generated. ``elasticdl zoo data cifar10 images --source=cifar-10-batches-bin`` converts the real
CIFAR-10; set AUGMENT for it, and train more epochs with a falling rate.
"""

import keras
import tensorflow as tf

SIDE, CHANNELS, CLASSES = 32, 3, 10
AUGMENT = False
"""Whether images to learn from are moved and mirrored: for photographs, not for the generated patterns."""
_EXAMPLE = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def custom_model(widths=(16, 32, 64), blocks=3, momentum=0.9):
    """Residual blocks of two convolutions each; each further width halves the side of the image.

    Args:
        widths: channels of the convolutions.
        blocks: residual blocks of each width; ResNet-20 has 3, ResNet-32 has 5.
        momentum: of the moving averages of BatchNormalization.
    """

    def convolved(x, width, stride=1, size=3):
        x = keras.layers.Conv2D(
            width, size, stride, padding="same", use_bias=False, kernel_initializer="he_normal",
            kernel_regularizer=keras.regularizers.L2(1e-4),
        )(x)  # fmt: skip
        return keras.layers.BatchNormalization(momentum=momentum)(x)

    pixels = keras.Input((SIDE, SIDE, CHANNELS), dtype="uint8", name="pixels")
    x = keras.layers.Rescaling(1 / 64, offset=-2)(pixels)
    x = keras.layers.ReLU()(convolved(x, widths[0]))
    for width in widths:
        for block in range(blocks):
            stride = 2 if block == 0 and width != widths[0] else 1
            y = keras.layers.ReLU()(convolved(x, width, stride))
            y = convolved(y, width)
            if stride > 1:
                x = convolved(x, width, stride, size=1)
            x = keras.layers.ReLU()(keras.layers.Add()([x, y]))
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(pixels, keras.layers.Dense(CLASSES, activation="softmax")(x), name="resnet20")


def loss(labels, predictions):
    """Cross-entropy of each record, (batch,)."""
    return keras.losses.sparse_categorical_crossentropy(labels, predictions)


def optimizer():
    """Momentum for batches of 64; the rate suits some thousand images."""
    return keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True)


def augment(images, records):
    """Images moved by up to four pixels and mirrored: chance that follows from the records themselves."""
    seed = tf.stack([tf.strings.to_hash_bucket_fast(tf.strings.reduce_join(records), 1 << 31), 0])
    padded = tf.pad(images, [[0, 0], [4, 4], [4, 4], [0, 0]])
    return tf.image.stateless_random_flip_left_right(
        tf.image.stateless_random_crop(padded, tf.shape(images), seed), seed
    )


def feed_batch(records, mode, metadata):
    """Pixels (batch, 32, 32, 3) and labels (batch,)."""
    examples = tf.io.parse_example(records, _EXAMPLE)
    pixels = tf.io.decode_raw(examples["image"], tf.uint8, fixed_length=SIDE * SIDE * CHANNELS)
    pixels = tf.reshape(pixels, (-1, SIDE, SIDE, CHANNELS))
    if mode == "predict":
        return pixels
    return (augment(pixels, records) if AUGMENT and mode == "train" else pixels), examples["label"]


def eval_metrics_fn():
    """Metrics of evaluation."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
