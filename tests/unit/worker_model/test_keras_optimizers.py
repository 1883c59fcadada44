"""Optimizers that Keras runs on the replicas of a ring: their updates are those of Keras, and they need no object."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.runner import ModelRunner
from elasticdl.worker.model.user.calls import UserCodeError

from .conftest import WriteModule, runner_of

pytestmark = pytest.mark.tensorflow

NUMBERS = np.random.default_rng(0).normal(size=(16, 5)).astype(np.float32)
RAW = {"numbers": NUMBERS, "label": (NUMBERS[:, :1] > 0).astype(np.float32)}
MODEL = """
class Mine(keras.optimizers.SGD):
    def update_step(self, gradient, variable, learning_rate):
        super().update_step(2 * gradient, variable, learning_rate)

class Broken(keras.optimizers.SGD):
    def update_step(self, gradient, variable, learning_rate):
        raise RuntimeError("no")

def custom_model(constraint=None):
    return keras.Sequential([
        keras.Input((5,), name="numbers"),
        layers.Dense(3, "tanh", kernel_constraint=constraint),
        layers.Dense(1, "sigmoid"),
    ])

def optimizer():
    return {}

def feed_batch(records, mode, metadata):
    return records["numbers"], records["label"]
"""
GAN = """
class custom_model(keras.Model):
    def __init__(self):
        super().__init__()
        self.generator, self.critic, self.unused = layers.Dense(5), layers.Dense(1), layers.Dense(2)
        self.first = keras.optimizers.SGD(0.5)
        self.second = keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5), weight_decay=0.1)
        self.compile()

    def train_step(self, data):
        features, labels = data
        self.unused(features)
        with tf.GradientTape(persistent=True) as tape:
            made = self.generator(features)
            told = self.critic(made)
            critic_loss = ops.mean((told - labels) ** 2)
            generator_loss = -ops.mean(told)
        self.second.apply(tape.gradient(critic_loss, self.critic.trainable_weights), self.critic.trainable_weights)
        weights = self.generator.trainable_weights
        self.first.apply(tape.gradient(generator_loss, weights), weights)
        return {"critic_loss": critic_loss, "generator_loss": generator_loss}

del loss, optimizer
feed_batch = lambda records, mode, metadata: (records["numbers"], records["label"])
"""


def updated(runner: ModelRunner, gradients: list[Any], *, restarts: int = 0, rate: float = 0.01) -> Any:
    """The trainable weights after some updates; after ``restarts`` of them, another process continues."""
    assert runner.updater is not None
    weights = runner.initial_dense()[: runner.dense.trainable_size]
    kept, version = runner.updater.initial, object()
    for number, gradient in enumerate(gradients):
        if restarts and number == restarts:
            version = object()
            runner.updater.update(weights.copy(), kept.copy(), 9 * gradient, rate=rate, scale=1.0, version=object())
        runner.updater.update(weights, kept, gradient, rate=rate, scale=1.0, version=version)
    return weights


def by_keras(runner: ModelRunner, optimizer: Any, gradients: list[Any]) -> Any:
    """The same updates by ``apply()`` on the model's variables."""
    variables = runner.dense.trainable
    sizes = [int(np.prod(one.shape)) for one in variables]
    for gradient in gradients:
        pieces = np.split(gradient, np.cumsum(sizes)[:-1])
        optimizer.apply([tf.reshape(one, v.shape) for one, v in zip(pieces, variables, strict=True)], variables)
    return np.concatenate([variable.numpy().reshape(-1) for variable in variables])


def gradients_of(runner: ModelRunner, count: int = 4) -> list[Any]:
    random = np.random.default_rng(1)
    return [random.normal(size=runner.dense.trainable_size).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize(
    ("expression", "tolerance"),
    [
        ("keras.optimizers.Lamb(0.01, weight_decay=0.1)", 1e-6),
        ("keras.optimizers.Adafactor(0.01)", 1e-6),
        ("keras.optimizers.Muon(0.01)", 1e-3),
        ("Mine(0.01, momentum=0.9, global_clipnorm=0.5)", 1e-6),
    ],
)
def test_any_optimizer_of_keras_moves_a_replica_as_apply_does(
    write_module: WriteModule, expression: str, tolerance: float
) -> None:
    module = write_module(MODEL.replace("return {}", f"return {expression}"))
    runner, _ = runner_of(module, RAW, replicated=True)
    optimizer = runner.signature().optimizer
    assert optimizer.name == "keras " + expression.split("(")[0].split(".")[-1]
    assert optimizer.kept == runner.updater.initial.size  # type: ignore[union-attr]
    gradients = gradients_of(runner)
    found, again = updated(runner, gradients), updated(runner, gradients, restarts=2)
    np.testing.assert_array_equal(found, again)
    expected = by_keras(runner, module.make_optimizer(), gradients)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def test_any_constraint_holds_on_replicas(write_module: WriteModule) -> None:
    body = MODEL.replace("return {}", "return keras.optimizers.Adam(0.1)")
    module = write_module(body.replace("constraint=None", "constraint=keras.constraints.UnitNorm()"))
    runner, _ = runner_of(module, RAW, replicated=True)
    assert runner.signature().optimizer.name == "keras Adam"
    kernel = updated(runner, gradients_of(runner), rate=0.1)[:15].reshape(5, 3)
    np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), 1.0, rtol=1e-5)
    with pytest.raises(UserError, match="AllreduceStrategy"):
        runner_of(module, RAW)


def test_an_optimizer_with_a_formula_keeps_it(write_module: WriteModule) -> None:
    module = write_module(MODEL.replace("return {}", "return keras.optimizers.Adam(0.1)"))
    runner, _ = runner_of(module, RAW, replicated=True)
    assert runner.updater is None
    assert runner.signature().optimizer.name == "adam"


def test_clipping_is_of_the_mean_gradient(write_module: WriteModule) -> None:
    module = write_module(MODEL.replace("return {}", "return Mine(0.01, global_clipnorm=1e-3)"))
    runner, batch = runner_of(module, RAW, replicated=True)
    result = runner.train(batch, runner.initial_dense(), step_seed=1)
    assert np.linalg.norm(result.dense_gradient) > 1e-2
    moved = updated(runner, [result.dense_gradient]) - runner.initial_dense()[: runner.dense.trainable_size]
    np.testing.assert_allclose(np.linalg.norm(moved), 2 * 0.01 * 1e-3, rtol=1e-3)


def test_several_optimizers_of_a_train_step_move_their_own_variables(write_module: WriteModule) -> None:
    runner, batch = runner_of(write_module(GAN), RAW, replicated=True)
    assert runner.signature().optimizer.name == "keras Adam and SGD"
    result = runner.train(batch, runner.initial_dense(), step_seed=1)
    gradient = result.dense_gradient
    names = [spec.name for spec in runner.dense.specs]
    assert runner.updater is not None
    weights, kept, version = runner.initial_dense(), runner.updater.initial, object()
    initial = weights.copy()
    for _ in range(2):
        runner.updater.update(weights, kept, gradient, rate=0.1, scale=0.5, version=version)
    sizes = np.cumsum([spec.size for spec in runner.dense.specs])
    moved = dict(zip(names, np.split(weights - initial, sizes[:-1]), strict=True))
    pieces = dict(zip(names, np.split(gradient, sizes[:-1]), strict=True))
    (generator,) = [name for name in names if name.endswith("dense/kernel")]
    (critic,) = [name for name in names if name.endswith("dense_1/kernel")]
    np.testing.assert_allclose(moved[generator], -2 * 0.5 * 0.5 * pieces[generator], rtol=1e-4, atol=1e-6)
    assert np.all(np.abs(moved[critic]) > 0.1)
    assert not any(moved[name].any() for name in names if "dense_2" in name)


def test_what_a_replica_can_not_run_is_refused_by_name(write_module: WriteModule) -> None:
    with pytest.raises(UserError, match="has 2 optimizers"):
        runner_of(write_module(GAN, name="gan"), RAW)
    with pytest.raises(UserError, match="use_ema"):
        runner_of(write_module(GAN.replace("SGD(0.5)", "SGD(0.5, use_ema=True)"), name="ema"), RAW, replicated=True)
    free = MODEL.replace("return {}", "return keras.optimizers.ScheduleFreeAdamW(0.1)")
    with pytest.raises(UserError, match="other weights than those that it trains"):
        runner_of(write_module(free, name="free"), RAW, replicated=True)
    broken = MODEL.replace("return {}", "return Broken(0.1)")
    with pytest.raises(UserCodeError, match="the optimizer"):
        runner_of(write_module(broken, name="broken"), RAW, replicated=True)


RNN = """
class Mine(keras.optimizers.Adam):
    pass

def custom_model():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        inputs = keras.Input((5,), name="numbers")
        hidden = layers.BatchNormalization()(layers.GRU(4)(layers.Reshape((5, 1))(inputs)))
        model = keras.Model({"numbers": inputs}, layers.Dense(1, "sigmoid", dtype="float32")(hidden))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    model.spare = model.add_weight(shape=(2,), name="spare")
    return model

def optimizer():
    return keras.optimizers.LossScaleOptimizer(Mine(0.1, use_ema=True, ema_momentum=0.5), initial_scale=8.0)
"""


def test_recurrent_layers_mixed_precision_and_averages_work_with_an_optimizer_of_the_users(
    write_module: WriteModule,
) -> None:
    runner, batch = runner_of(write_module(RNN), RAW, replicated=True)
    optimizer = runner.signature().optimizer
    assert optimizer.name == "keras Mine"
    assert optimizer.hyperparameters["ema_momentum"] == 0.5
    result = runner.train(batch, runner.initial_dense(), step_seed=1)
    assert (result.finite, result.loss_scale) == (True, 8.0)
    assert runner.updater is not None
    weights = runner.initial_dense()[: runner.dense.trainable_size]
    before = weights.copy()
    runner.updater.update(weights, runner.updater.initial, result.dense_gradient, rate=0.1, scale=1.0, version=object())
    moved = weights - before
    has_gradient = np.abs(result.dense_gradient) > 1e-4
    np.testing.assert_allclose(moved[has_gradient], -0.1 * np.sign(result.dense_gradient[has_gradient]), rtol=5e-2)
    assert not moved[result.dense_gradient == 0.0].any()  # Adam's first step: nothing without a gradient moves.
    assert np.sum(result.dense_gradient == 0.0) >= 2
