"""64 numbers that follow from 6: a variational autoencoder whose divergence is an ``add_loss``."""

from typing import Any

import keras
from keras import ops

SIZE, CODE, WEIGHT = 64, 4, 0.0002


@keras.saving.register_keras_serializable("quality")
class Sampling(keras.layers.Layer):  # type: ignore[misc]
    """Draws the code from its distribution; adds the Kullback-Leibler divergence to the loss."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Code (batch, 4) from its mean and the logarithm of its variance."""
        mean, log_variance = inputs
        divergence = 0.5 * ops.sum(ops.square(mean) + ops.exp(log_variance) - 1 - log_variance, axis=-1)
        self.add_loss(WEIGHT * ops.mean(divergence))
        if not training:
            return mean
        noise = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * noise


def custom_model() -> keras.Model:
    """The reconstruction, (batch, 64)."""
    pixels = keras.Input((SIZE,))
    x = keras.layers.Dense(32, activation="relu")(pixels)
    code = Sampling()([keras.layers.Dense(CODE)(x), keras.layers.Dense(CODE)(x)])
    x = keras.layers.Dense(32, activation="relu")(code)
    return keras.Model(pixels, keras.layers.Dense(SIZE, activation="sigmoid")(x))


def loss(labels: Any, predictions: Any) -> Any:
    return ops.mean(ops.square(labels - predictions), axis=-1)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.001)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return records["pixels"], records["pixels"]


def eval_metrics_fn() -> dict[str, Any]:
    return {"mse": keras.metrics.MeanSquaredError()}
