"""Random numbers of user code follow from the seed of a batch, not from the batches that a process computed before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.worker_model.conftest import WriteModule, runner_of

from elasticdl.worker.model.user.feeder import BatchFeeder

pytestmark = pytest.mark.tensorflow

RAW = {"x": np.arange(32, dtype=np.float32).reshape(8, 4), "label": np.zeros((8, 1), np.float32)}
NOISES = {
    "tf.random": "tf.random.normal((8, 4))",
    "integers": "tf.cast(tf.random.uniform((8, 4), 0, 1000, tf.int64), tf.float32)",
    "truncated": "tf.random.truncated_normal((8, 4))",
    "shuffled": "tf.random.shuffle(records['x'])",
    "categorical": "tf.cast(tf.random.categorical(tf.zeros((8, 50)), 4), tf.float32)",
    "gamma": "tf.random.gamma((8,), tf.constant([1.0, 2.0, 3.0, 4.0]))",
    "poisson": "tf.random.poisson((8,), tf.constant([10.0, 20.0, 30.0, 40.0]))",
    "dropout": "tf.nn.dropout(records['x'], 0.5)",
    "keras": "keras.random.normal((8, 4))",
    "keras layer": "blur(records['x'], training=True)",
    "numpy": "tf.reshape(tf.numpy_function(lambda: np.float32(np.random.normal(size=(8, 4))), [], 'float32'), (8, 4))",
    "python": "tf.numpy_function(lambda: np.float32(random.random()), [], 'float32') * tf.ones((8, 4))",
}
FEED = """
import random

blur = layers.GaussianNoise(1.0)

def feed_batch(records, mode, metadata):
    return {{"x": records["x"], "noise": {noise}}}, records["label"]

def custom_model(): ...
"""


def noise_of(feeder: BatchFeeder, seed: int) -> Any:
    batch = feeder.feed(RAW, seed)
    assert batch is not None
    return np.asarray(batch.features["noise"])


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
def test_a_feeds_random_numbers_follow_from_its_seed(write_module: WriteModule, noise: str, eager: bool) -> None:
    module = write_module(FEED.format(noise=noise))
    one, other = (BatchFeeder(module, "train", None, eager=eager) for _ in range(2))
    noise_of(one, 1)  # The first process has computed more batches.
    assert np.array_equal(noise_of(one, 2), noise_of(other, 2))
    assert not np.array_equal(noise_of(one, 3), noise_of(other, 2))
    assert np.array_equal(noise_of(one, 2), noise_of(other, 2))


def test_records_of_a_dataset_get_different_numbers_in_an_order_that_follows_from_the_seed(
    write_module: WriteModule,
) -> None:
    module = write_module("""
    def feed(dataset, mode, metadata):
        shuffled = dataset.shuffle(8)
        return shuffled.map(lambda record: ({"noise": tf.random.normal(()), "record": record}, 0.0))

    feed_batch = None
    def custom_model(): ...
    """)
    one, other = (BatchFeeder(module, "train", None) for _ in range(2))
    records = [b"%d" % number for number in range(8)]
    one.feed(records, 1)
    first, second, third = one.feed(records, 2), other.feed(records, 2), one.feed(records, 3)
    assert first is not None and second is not None and third is not None
    assert len(set(np.asarray(first.features["noise"]).tolist())) == len(records)
    for name in ("noise", "record"):
        assert np.array_equal(first.features[name], second.features[name])
        assert not np.array_equal(first.features[name], third.features[name])


@pytest.mark.parametrize("eager", [False, True])
def test_a_steps_random_numbers_follow_from_its_seed(write_module: WriteModule, eager: bool) -> None:
    """Keras layers, TensorFlow's operations, and a generator that is no attribute of a layer."""
    module = write_module("""
    generator = keras.random.SeedGenerator(3)

    class Noisy(layers.Layer):
        def call(self, x):
            return x + tf.random.normal(tf.shape(x)) + keras.random.normal((4,), seed=generator)

    def custom_model():
        return keras.Sequential([keras.Input((4,), name="x"), Noisy(), layers.Dropout(0.5), layers.Dense(1)])

    def feed_batch(records, mode, metadata):
        return records["x"], records["label"]

    def loss(labels, predictions):
        return keras.losses.mean_squared_error(labels, predictions)
    """)
    one, batch = runner_of(module, RAW, eager=eager)
    other, _ = runner_of(module, RAW, eager=eager)
    dense = one.initial_dense()
    losses = [one.train(batch, dense.copy(), step_seed=seed).loss for seed in (1, 2, 1)]
    assert losses[0] == losses[2] != losses[1]
    assert other.train(batch, dense.copy(), step_seed=2).loss == losses[1]
    evaluated = [one.evaluate(batch, dense.copy(), step_seed=seed) for seed in (1, 2, 1)]
    assert evaluated[0] == evaluated[2] != evaluated[1]
    assert other.evaluate(batch, dense.copy(), step_seed=2) == evaluated[1]
