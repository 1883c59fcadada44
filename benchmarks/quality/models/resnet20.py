"""Five classes of images of 16 x 16: ResNet-20 (He et al., 2016), its 19 convolutions narrow."""

from typing import Any

import keras

SIDE, CLASSES, WIDTHS, BLOCKS = 16, 5, (8, 16, 32), 3


def _convolved(x: Any, width: int, stride: int = 1) -> Any:
    x = keras.layers.Conv2D(width, 3, stride, padding="same", use_bias=False, kernel_initializer="he_normal")(x)
    return keras.layers.BatchNormalization(momentum=0.9)(x)


def _block(x: Any, width: int, stride: int) -> Any:
    y = keras.layers.ReLU()(_convolved(x, width, stride))
    y = _convolved(y, width)
    if stride > 1:
        x = keras.layers.Conv2D(width, 1, stride, use_bias=False, kernel_initializer="he_normal")(x)
    return keras.layers.ReLU()(x + y)


def custom_model() -> keras.Model:
    """Probabilities of the classes, (batch, 5)."""
    images = keras.Input((SIDE, SIDE, 3))
    x = keras.layers.ReLU()(_convolved(images, WIDTHS[0]))
    for width in WIDTHS:
        for block in range(BLOCKS):
            x = _block(x, width, 2 if block == 0 and width != WIDTHS[0] else 1)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(images, keras.layers.Dense(CLASSES, activation="softmax")(x))


def loss(labels: Any, predictions: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(labels, predictions)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return keras.ops.reshape(records["pixels"], (-1, SIDE, SIDE, 3)), records["label"]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
