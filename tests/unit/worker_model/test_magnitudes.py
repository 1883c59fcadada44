"""Gradients of lookups: what a step gives the optimizer is what Keras' optimizer makes of them in ``fit()``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.shared.model.signature import VariableKind
from elasticdl.worker.model.runner import ModelRunner

from .conftest import Tables, WriteModule, runner_of

pytestmark = pytest.mark.tensorflow

TEXT = """
def custom_model():
    words = keras.Input((6,), dtype="int64", name="words")
    table = layers.Embedding(12, 4, name="table")
    x = layers.GlobalAveragePooling1D()(table(words))
    return keras.Model({"words": words}, layers.Dense(1, activation="sigmoid", name="head")(x))

def optimizer(name="Adam", clip=None):
    return getattr(keras.optimizers, name)(0.1, **{clip: 0.02} if clip else {})
"""
TIED = """
class custom_model(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(12, 4, name="table")

    def call(self, features, training=False):
        words = features["words"]
        both = self.table(words[:, :3]), self.table(words[:, 3:])
        return ops.sigmoid(ops.mean(both[0] * both[1], axis=(1, 2)))[:, None]

def optimizer():
    return keras.optimizers.Adam(0.1)
"""
OWN_STEP = """
    def train_step(self, data):
        words, labels = data
        with tf.GradientTape() as tape:
            loss = ops.mean(keras.losses.binary_crossentropy(labels, self(words, training=True)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}
"""
BODIES = {"text": TEXT, "tied": TIED, "own step": TIED.replace("\ndef optimizer", OWN_STEP + "\ndef optimizer")}


def words(count: int = 16) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, (count, 1)).astype(np.float32)
    return {"words": generator.integers(0, 9, (count, 6)), "label": labels}


def fitted(runner: ModelRunner, raw: dict[str, Any]) -> dict[str, Any]:
    """Momentum and velocity (or whatever the optimizer keeps) of each variable after one batch of ``fit()``."""
    model: Any = runner.built.model
    optimizer = runner.module.make_optimizer()
    model.compile(optimizer, loss="binary_crossentropy")
    model.fit({"words": raw["words"]}, raw["label"], batch_size=len(raw["label"]), shuffle=False, verbose=0)
    return {variable.path.split("/", 1)[1]: variable.numpy() for variable in optimizer.variables}


@pytest.mark.parametrize("body", BODIES)
def test_squares_of_a_dense_table_are_those_of_fit(write_module: WriteModule, body: str) -> None:
    raw = words()
    runner, batch = runner_of(write_module(BODIES[body]), raw, swap_bytes_min=1 << 30)
    (table,) = [spec for spec in runner.dense.specs if spec.shape == (12, 4)]
    assert [spec.gathered for spec in runner.signature().dense] == [spec is table for spec in runner.dense.specs]
    size = runner.dense.trainable_size
    result = runner.train(batch, runner.initial_dense(), step_seed=0)
    assert result.dense_gradient.size == size + 48
    runner.dense.assign(runner.built.model.weights, runner.initial_dense())
    kept = fitted(runner, raw)
    (velocity,) = [value for path, value in kept.items() if "table" in path and path.endswith("velocity")]
    np.testing.assert_allclose(0.001 * result.dense_gradient[size:].reshape(12, 4), velocity, rtol=1e-4)
    squared_sum = 0.001 * np.square(result.dense_gradient[:48].reshape(12, 4))
    assert not np.allclose(squared_sum, velocity, rtol=0.1, atol=0), "the test would not notice the square of the sum"


@pytest.mark.parametrize(
    ("name", "clip"),
    [("Adam", ""), ("Adamax", ""), ("Adam", "clipnorm"), ("Adam", "global_clipnorm"), ("Adam", "clipvalue")],
)
def test_squares_of_rows_are_those_of_fit(write_module: WriteModule, name: str, clip: str) -> None:
    raw = words()
    body = TEXT.replace('name="Adam", clip=None', f'name="{name}", clip="{clip}"')
    served, batch = runner_of(write_module(body, name="served"), raw)
    (spec,) = served.tables
    tables = Tables(served, rows=12)
    result = served.train(batch, served.initial_dense(), tables.pull(batch), step_seed=0)
    used = np.bincount(raw["words"].reshape(-1), minlength=12)
    unique = np.flatnonzero(used)
    power = served.optimizer.optimizer.power
    magnitudes = np.abs(result.row_gradients[spec.name]) ** power
    if clip != "global_clipnorm":  # Which adds the parts up, in Keras, too.
        places, values = result.row_magnitudes[spec.name]
        np.testing.assert_array_equal(unique[places], np.flatnonzero(used > 1))
        magnitudes[places] = values

    plain, _ = runner_of(write_module(body, name="plain"), raw, swap_bytes_min=1 << 30)
    dense = plain.initial_dense()
    is_table = [np.full(one.size, one.shape == (12, 4)) for one in plain.dense.specs]
    dense[np.concatenate(is_table)] = tables.full[spec.name].reshape(-1)
    plain.dense.assign(plain.built.model.weights, dense)
    kept = fitted(plain, raw)
    slot, share = ("velocity", 0.001) if power == 2 else ("norm", 1.0)
    (expected,) = [value for path, value in kept.items() if "table" in path and path.endswith(slot)]
    np.testing.assert_allclose(share * magnitudes, expected[unique], rtol=1e-4)


def test_optimizers_that_average_no_squares_get_none(write_module: WriteModule) -> None:
    raw = words()
    body = TEXT.replace('name="Adam"', 'name="SGD"')
    for swap_bytes_min in (0, 1 << 30):
        runner, batch = runner_of(write_module(body), raw, swap_bytes_min=swap_bytes_min)
        result = runner.train(batch, runner.initial_dense(), Tables(runner).pull(batch), step_seed=0)
        assert result.dense_gradient.size == runner.dense.trainable_size
        assert not result.row_magnitudes
        assert not any(spec.gathered for spec in runner.dense.specs if spec.kind is VariableKind.TRAINABLE)
