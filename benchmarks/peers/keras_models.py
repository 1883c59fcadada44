"""Dense models for ``benchmarks/strategies.py``, compiled: a perceptron, ResNet-20 and a small Transformer.

Keras alone runs this file, in one process and under ``MultiWorkerMirroredStrategy``; a job takes it as its model file.
``torch_models.py`` has their twins.
"""

from __future__ import annotations

import keras

SHAPES = {"mlp": (429,), "resnet20": (32, 32, 3), "transformer": (64,)}
CLASSES, WORDS, PLACES, WIDTH, HEADS, BLOCKS = 10, 4000, 64, 128, 4, 2


def mlp() -> keras.Model:
    """Three hidden layers of 400 units: 0.5 million weights."""
    inputs = x = keras.Input(SHAPES["mlp"], name="x")
    for _ in range(3):
        x = keras.layers.Dense(400, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, name="label")(x))


def resnet20() -> keras.Model:
    """ResNet-20 (He et al., 2016) for images of 32 x 32 pixels: 0.27 million weights."""

    def convolved(x: object, width: int, stride: int = 1, size: int = 3) -> object:
        x = keras.layers.Conv2D(width, size, stride, padding="same", use_bias=False)(x)
        return keras.layers.BatchNormalization(momentum=0.9)(x)

    inputs = keras.Input(SHAPES["resnet20"], name="x")
    x = keras.layers.ReLU()(convolved(inputs, 16))
    for width in (16, 32, 64):
        for block in range(3):
            stride = 2 if block == 0 and width > 16 else 1
            y = convolved(keras.layers.ReLU()(convolved(x, width, stride)), width)
            if stride > 1:
                x = convolved(x, width, stride, size=1)
            x = keras.layers.ReLU()(keras.layers.Add()([x, y]))
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, name="label")(x))


@keras.saving.register_keras_serializable("benchmark")
class Places(keras.layers.Layer):  # type: ignore[misc]
    """Adds a vector for each place, (batch, places, width)."""

    def build(self, shape: tuple[int, ...]) -> None:
        """Make the vectors."""
        self.vectors = self.add_weight(shape[1:], initializer="uniform", name="vectors")

    def call(self, x: object) -> object:
        """The sum."""
        return x + self.vectors


def transformer() -> keras.Model:
    """Two blocks of attention over 64 words: 0.9 million weights."""
    inputs = keras.Input(SHAPES["transformer"], dtype="int64", name="x")
    x = Places()(keras.layers.Embedding(WORDS, WIDTH)(inputs))
    for _ in range(BLOCKS):
        attended = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x)
        x = keras.layers.LayerNormalization()(keras.layers.Add()([x, attended]))
        y = keras.layers.Dense(WIDTH)(keras.layers.Dense(4 * WIDTH, activation="relu")(x))
        x = keras.layers.LayerNormalization()(keras.layers.Add()([x, y]))
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, name="label")(x))


def custom_model(kind: str = "mlp") -> keras.Model:
    """One of the models, compiled."""
    model = {"mlp": mlp, "resnet20": resnet20, "transformer": transformer}[kind]()
    optimizer = keras.optimizers.Adam(1e-3) if kind == "transformer" else keras.optimizers.SGD(0.01, momentum=0.9)
    model.compile(optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
