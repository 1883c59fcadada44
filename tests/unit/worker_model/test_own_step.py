"""A train_step() of the model's own: gradients, results and layer state are those that fit() would have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import StateUpdate, VariableKind

from .conftest import WriteModule, runner_of

pytestmark = pytest.mark.tensorflow

NUMBERS = np.random.default_rng(0).normal(size=(16, 5)).astype(np.float32)
RAW = {"numbers": NUMBERS, "label": (NUMBERS[:, :1] > 0).astype(np.float32)}
NET = """
class custom_model(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.norm, self.head = layers.Dense(4, "tanh"), layers.BatchNormalization(), layers.Dense(1)

    def call(self, features, training=False):
        return ops.sigmoid(self.head(self.norm(self.hidden(features["numbers"]), training=training)))
"""
OWN = """
    def train_step(self, data):
        return super().train_step(data)
"""
AUTOENCODER = """
del loss, optimizer

class custom_model(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(4, "relu"), layers.BatchNormalization(), layers.Dense(2)])
        self.decoder = keras.Sequential([keras.Input((2,)), layers.Dense(5)])
        self.total = keras.metrics.Mean(name="total")
        self.compile(keras.optimizers.SGD(0.1))

    @property
    def metrics(self):
        return [self.total]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            code = self.encoder(data["numbers"], training=True)
            noise = keras.random.normal(ops.shape(code)) * 0.0
            error = ops.mean((self.decoder(code + noise) - data["numbers"]) ** 2)
            size = ops.mean(code**2)
            total = error + 0.1 * size
        self.optimizer.apply(tape.gradient(total, self.trainable_weights), self.trainable_weights)
        self.total.update_state(total)
        return {"loss": self.total.result(), "size": size}

def feed_batch(records, mode, metadata):
    records.pop("label")
    return records
"""


def step(runner: Any, batch: Any, dense: Any = None) -> Any:
    return runner.train(batch, runner.initial_dense() if dense is None else dense, step_seed=3)


def results(runner: Any, outcome: Any) -> dict[str, float]:
    found: dict[str, float] = runner.merge(runner.split_states(outcome.metric_states))
    return found


def test_keras_own_step_gives_what_the_compiled_step_gives(write_module: WriteModule) -> None:
    metrics = "\ndef eval_metrics_fn():\n    return {}\n"
    plain, batch = runner_of(write_module(NET + metrics, name="plain"), RAW)
    own, own_batch = runner_of(write_module(NET + OWN + metrics, name="own"), RAW)
    expected, found = step(plain, batch), step(own, own_batch)
    for name in ("dense_gradient", "statistics_update", "loss"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-6)
    assert [spec.state for spec in own.dense.specs] == [spec.state for spec in plain.dense.specs]
    assert results(own, found)["loss"] == pytest.approx(results(plain, expected)["loss"], rel=1e-5)
    dense = plain.initial_dense() + 0.1
    own.evaluate(own_batch, dense)
    plain.evaluate(batch, dense)
    assert own.merge(own.metric_states()) == pytest.approx(plain.merge(plain.metric_states()), rel=1e-5)


def test_a_model_without_call_and_labels_trains_by_its_step(write_module: WriteModule) -> None:
    runner, batch = runner_of(write_module(AUTOENCODER), RAW)
    before = runner.initial_dense()
    outcome = step(runner, batch)
    assert outcome.finite
    found = results(runner, outcome)
    assert list(found) == ["loss", "size"]
    assert found["loss"] == pytest.approx(outcome.loss, rel=1e-5)
    model = runner.built.model
    runner.dense.assign(model.weights, before)
    with tf.GradientTape() as tape:
        code = model.encoder(NUMBERS, training=True)
        total = tf.reduce_mean((model.decoder(code) - NUMBERS) ** 2) + 0.1 * tf.reduce_mean(code**2)
    gradients = [
        tf.reshape(one, [-1]) for one in tape.gradient(total, runner.dense.variables[: runner.dense.trainable_count])
    ]
    np.testing.assert_allclose(outcome.dense_gradient, tf.concat(gradients, 0), rtol=1e-4, atol=1e-6)
    assert outcome.loss == pytest.approx(float(total), rel=1e-5)
    np.testing.assert_array_equal(step(runner, batch, before).dense_gradient, outcome.dense_gradient)


def test_states_of_several_batches_add_up(write_module: WriteModule) -> None:
    runner, batch = runner_of(write_module(AUTOENCODER), RAW)
    outcomes = [step(runner, batch, runner.initial_dense() * factor) for factor in (1.0, 2.0)]
    summed = runner.merge(runner.split_states(sum(one.metric_states for one in outcomes)))
    assert summed["loss"] == pytest.approx(np.mean([one.loss for one in outcomes]), rel=1e-5)


def test_a_test_step_evaluates(write_module: WriteModule) -> None:
    tested = """
    def test_step(self, data):
        return {"loss": ops.mean(self.encoder(data["numbers"])), "count": ops.sum(ops.ones((4,)))}
"""
    text = AUTOENCODER.replace("\ndef feed_batch", tested + "\ndef feed_batch")
    runner, batch = runner_of(write_module(text), RAW)
    assert runner.metric_names == ("loss", "count")
    losses = [runner.evaluate(batch, runner.initial_dense() + change) for change in (0.0, 0.5)]
    assert runner.merge(runner.metric_states()) == pytest.approx({"loss": np.mean(losses), "count": 4.0}, rel=1e-4)
    runner.reset_metrics()
    runner.evaluate(batch, runner.initial_dense())
    assert runner.merge(runner.metric_states())["loss"] == pytest.approx(losses[0], rel=1e-4)


MOMENTUM = """
class custom_model(keras.Model):
    def __init__(self):
        super().__init__()
        self.fast, self.head = layers.Dense(4, "tanh"), layers.Dense(1, "sigmoid")
        self.slow = layers.Dense(4, "tanh", trainable=False)

    def call(self, features):
        return self.head(self.fast(features["numbers"]) + self.slow(features["numbers"]))

    def train_step(self, data):
        logs = super().train_step(data)
        for slow, fast in zip(self.slow.weights, self.fast.weights):
            slow.assign(0.9 * slow + 0.1 * fast)
        return logs
"""


def test_without_a_test_step_evaluations_give_what_keras_own_gives(write_module: WriteModule) -> None:
    compiled = NET.replace(
        "layers.Dense(1)\n",
        "layers.Dense(1)\n        self.compile('sgd', 'binary_crossentropy', metrics=['accuracy', 'mae'])\n",
    )
    runner, batch = runner_of(write_module("del loss, optimizer\n" + compiled + OWN), RAW)
    runner.evaluate(batch, runner.initial_dense(), step_seed=1)
    found = runner.merge(runner.metric_states())
    model = runner.built.model
    expected = model.evaluate({"numbers": NUMBERS}, RAW["label"], return_dict=True, verbose=0)
    assert found == pytest.approx({**expected}, rel=1e-5)
    assert set(runner.metric_names) == {"loss", "accuracy", "mae"}
    assert runner.metric_directions == {"loss": "down", "accuracy": "up", "mae": "down"}


def test_weights_that_a_step_assigns_are_layer_state(write_module: WriteModule) -> None:
    runner, batch = runner_of(write_module(MOMENTUM), RAW)
    rules = {spec.name: spec.state for spec in runner.dense.specs if spec.kind is VariableKind.STATISTIC}
    assert len(rules) == 2
    assert {rule.update for rule in rules.values()} == {StateUpdate.MOVING_AVERAGE}
    assert [rule.momentum for rule in rules.values()] == pytest.approx([0.9, 0.9])
    assert step(runner, batch).finite
    with pytest.raises(UserError, match=r"train_step\(\) assigns .*which is trainable"):
        runner_of(write_module(MOMENTUM.replace(", trainable=False", ""), name="other"), RAW)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {'loss': 0.0}", r"train_step\(\) applies no optimizer"),
        ("return super().train_step(data)['loss']", r"train_step\(\) of custom_model returns EagerTensor"),
        ("logs = super().train_step(data); super().train_step(data); return logs", "twice"),
        (
            (
                "self.other = keras.optimizers.SGD(); self.other.apply([0.0], self.trainable_weights[:1]); "
                "return super().train_step(data)"
            ),
            "applies 2 optimizers",
        ),
    ],
)
def test_a_step_that_no_worker_can_run_is_refused(write_module: WriteModule, body: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        runner_of(write_module(NET + f"\n    def train_step(self, data):\n        {body}\n"), RAW)


def test_tables_stay_dense(write_module: WriteModule) -> None:
    text = NET.replace(
        "layers.Dense(1)\n", "layers.Dense(1)\n        self.table = layers.Embedding(9, 4)\n", 1
    ).replace(
        'self.hidden(features["numbers"])', 'self.hidden(features["numbers"]) + self.table(ops.ones((1,), "int32"))'
    )
    runner, batch = runner_of(write_module(text + OWN), RAW)
    assert runner.tables == ()
    assert step(runner, batch).finite
