"""How layer state is updated: found by trial on real Keras layers, and applied by the ps' own rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.ps.engine.dense import DenseStore
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import StateRule, StateUpdate, VariableKind

from .conftest import WriteModule, columns, fed, runner_of

pytestmark = pytest.mark.tensorflow

FEED = """
def feed_batch(records, mode, metadata):
    return records["numbers"], records["label"]
"""

STATEFUL = (
    FEED
    + """
class Stateful(layers.Layer):
    def build(self, shape):
        self.v = self.add_weight(name="v", shape=SHAPE, dtype=DTYPE, initializer=INITIAL, trainable=TRAINABLE)
        self.other = self.add_weight(name="other", shape=(), dtype="float32", initializer="ones", trainable=False)

    def call(self, x, training=False):
        v = self.v.value
        if training:
            UPDATE
        return x

SHAPE, DTYPE, INITIAL, TRAINABLE = (5,), "float32", "zeros", False

def custom_model():
    x = inputs = keras.Input((5,))
    x = Stateful(name="stateful")(x)
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
"""
)


def stateful(update: str, **constants: object) -> str:
    """A model with one layer that assigns ``self.v``."""
    body = STATEFUL.replace("UPDATE", update)
    return body + "".join(f"\n{name.upper()} = {value!r}" for name, value in constants.items())


def rules_of(write_module: WriteModule, body: str, **settings: Any) -> dict[str, str]:
    """Name of each statistic and its rule in words."""
    runner, _ = runner_of(write_module(body), columns(), **settings)
    return {spec.name: str(spec.state) for spec in runner.signature().dense if spec.kind is VariableKind.STATISTIC}


@pytest.mark.parametrize(
    ("update", "rule"),
    [
        ("self.v.assign(0.9 * v + 0.1 * ops.mean(x, 0))", "moving average 0.9"),
        ("self.v.assign(0.001 * v + 1e4 * ops.mean(x, 0))", "moving average 0.001"),
        ("self.v.assign(0.9999 * v + 1e-6 * ops.mean(x, 0))", "moving average 0.9999"),
        ("self.v.assign(v + ops.sum(x, 0))", "sum"),
        ("self.v.assign(v)", "sum"),
        ("self.v.assign(ops.mean(x, 0))", "assign"),
        ("self.v.assign(ops.maximum(v, ops.max(x, 0)))", "maximum"),
        ("self.v.assign(ops.maximum(v, ops.max(x, 0) - 1e6))", "maximum"),
        ("self.v.assign(ops.minimum(v, ops.min(x, 0)))", "minimum"),
        ("self.v.assign(0.9 * v + keras.random.normal((5,)))", "moving average 0.9"),
        ("self.v.assign(0.9 * v + tf.random.normal((5,)))", "moving average 0.9"),
        ("self.v.assign(0.9 * v + np.random.normal(size=5).astype('float32'))", "moving average 0.9"),
    ],
)
def test_the_rule_of_an_update_is_found(write_module: WriteModule, update: str, rule: str) -> None:
    assert rules_of(write_module, stateful(update)) == {"stateful/v": rule}


@pytest.mark.parametrize(
    ("update", "dtype", "rule"),
    [
        ("self.v.assign(v + ops.cast(ops.shape(x)[0], 'int64'))", "int64", "sum"),
        ("self.v.assign(v + 1)", "int32", "sum"),
        ("self.v.assign(v + 1)", "uint8", "sum"),
        ("self.v.assign(ops.ones_like(v))", "bool", "assign"),
        ("self.v.assign(0.9 * v + 0.1 * ops.cast(ops.mean(x, 0), v.dtype))", "float16", "moving average 0.9"),
    ],
)
def test_other_types_than_float32(write_module: WriteModule, update: str, dtype: str, rule: str) -> None:
    assert rules_of(write_module, stateful(update, dtype=dtype)) == {"stateful/v": rule}


@pytest.mark.parametrize(
    ("update", "value"),
    [
        ("self.v.assign(0.9 * v + 0.1 * ops.mean(x, 0) / ops.sum(0 * x))", "NaN|infinite"),
        ("self.v.assign(0.9 * v + ops.sum(0 * x, 0) / ops.sum(0 * x))", "NaN"),
        ("self.v.assign(ops.log(ops.sum(0 * x, 0)))", "infinite"),
    ],
)
def test_a_nan_before_a_layer_is_no_fault_of_its_update(write_module: WriteModule, update: str, value: str) -> None:
    expected = f"the state 'v' of layer 'stateful' becomes ({value}) in a training step with the first [0-9] records"
    with pytest.raises(UserError, match=expected) as caught:
        rules_of(write_module, stateful(update))
    assert "divide_no_nan" in caught.value.hint


@pytest.mark.parametrize(
    "update",
    [
        "self.v.assign(v + (ops.mean(x, 0) - v) / self.other); self.other.assign(self.other + 1)",
        "self.v.assign(ops.sin(v + ops.mean(x, 0)))",
        "self.v.assign(ops.clip(v + ops.mean(x, 0), 0, 1))",
        "self.v.assign(2 * v + ops.mean(x, 0))",
        "self.v.assign(-0.5 * v + ops.mean(x, 0))",
        "self.v.assign(ops.roll(v, 1))",
        "self.v.assign(v * np.arange(5, dtype='float32') / 5 + 1)",
        "self.v.assign(v * ops.mean(x))",
        "self.v.assign(ops.where(self.other > 1.5, v, ops.mean(x, 0))); self.other.assign(self.other + 1)",
    ],
)
def test_an_update_that_workers_can_not_share_is_refused(write_module: WriteModule, update: str) -> None:
    with pytest.raises(UserError, match=r"layer 'stateful' updates its state 'v'.*several workers") as caught:
        rules_of(write_module, stateful(update))
    assert "maximum(v, x)" in (caught.value.hint or "")


def test_an_assigned_trainable_variable_is_refused(write_module: WriteModule) -> None:
    with pytest.raises(UserError, match=r"assigns stateful/v, which is trainable"):
        rules_of(write_module, stateful("self.v.assign(v / 2)", trainable=True))


def model_of(*lines: str) -> str:
    """A model file whose model applies some layers to five numbers."""
    return FEED + "\n".join(
        [
            "def custom_model():",
            "    x = inputs = keras.Input((5,))",
            *(f"    {line}" for line in lines),
            "    return keras.Model(inputs, layers.Dense(1, activation='sigmoid')(layers.Flatten()(x)))",
        ]
    )


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    ("lines", "rules"),
    [
        (["x = layers.BatchNormalization(momentum=0.5)(x)"], {"moving average 0.5"}),
        (["x = layers.BatchNormalization(momentum=0.1)(x)"], {"moving average 0.1"}),
        (["norm = layers.BatchNormalization(momentum=0.9)", "x = norm(norm(x) + 1)"], {"moving average 0.81"}),
        (
            ["x = layers.TimeDistributed(layers.BatchNormalization(momentum=0.9))(layers.Reshape((5, 1))(x))"],
            {"moving average 0.59049"},
        ),
        (
            ["inner = keras.Sequential([layers.Dense(4), layers.BatchNormalization(momentum=0.7)])", "x = inner(x)"],
            {"moving average 0.7"},
        ),
        (
            ["x = layers.BatchNormalization(momentum=0.5)(layers.Dropout(0.5)(x))"] * 2,
            {"moving average 0.5"},
        ),
        (
            ["x = layers.BatchNormalization(renorm=True, momentum=0.9)(x)"],
            {"moving average 0.9", "moving average 0.99", "assign"},
        ),
        (["frozen = layers.BatchNormalization()", "frozen.trainable = False", "x = frozen(x)"], set()),
        (["x = layers.Dropout(0.5, seed=3)(x)"], set()),
    ],
)
def test_keras_layers(write_module: WriteModule, lines: list[str], rules: set[str], eager: bool) -> None:
    assert set(rules_of(write_module, model_of(*lines), eager=eager).values()) == rules


def test_spectral_normalization_is_refused(write_module: WriteModule) -> None:
    with pytest.raises(UserError, match=r"assigns .*/kernel, which is trainable"):
        rules_of(write_module, model_of("x = layers.SpectralNormalization(layers.Dense(4))(x)"))


def test_probing_leaves_the_model_as_it_was_built(write_module: WriteModule) -> None:
    runner, _ = runner_of(write_module(model_of("x = layers.BatchNormalization()(x)")), columns())
    fresh, _ = runner_of(write_module(model_of("x = layers.BatchNormalization()(x)")), columns())
    np.testing.assert_array_equal(runner.initial_dense(), fresh.initial_dense())
    assert runner.signature() == fresh.signature()


@pytest.mark.parametrize(
    "body",
    [
        model_of("x = layers.BatchNormalization(momentum=0.5)(layers.Dense(3)(x))"),
        model_of("x = layers.BatchNormalization(momentum=0.1)(layers.ReLU()(x - 2.5))"),
        stateful("self.v.assign(ops.maximum(v, ops.max(x, 0)))"),
        stateful("self.v.assign(v + ops.sum(ops.cast(x > 0, 'int32'), 0))", dtype="int32"),
    ],
)
def test_late_updates_give_the_state_of_one_process(write_module: WriteModule, body: str) -> None:
    """Eight workers that all pulled the first state push one after another: as one process with the same batches."""
    module = write_module(body)
    runner, _ = runner_of(module, columns())
    batches = [fed(module, columns(seed=seed)) for seed in range(8)]
    dense = runner.initial_dense()
    store = DenseStore(runner.signature().dense, runner.signature().optimizer)
    store.set(dense)
    for batch in batches:
        update = runner.train(batch, dense, step_seed=1).statistics_update
        store.check_statistics(update)
        store.update_statistics(update)
    model = runner.built.model
    for batch in batches:
        model(batch.features, training=True)
    expected = np.concatenate([np.asarray(variable, np.float32).reshape(-1) for variable in runner.dense.statistics])
    got = np.empty(store.size, np.float32)
    store.pull(got)
    np.testing.assert_allclose(got[runner.dense.trainable_size :][: expected.size], expected, atol=1e-6)


def test_state_in_the_signature_survives_json(write_module: WriteModule) -> None:
    runner, _ = runner_of(write_module(model_of("x = layers.BatchNormalization(momentum=0.5)(x)")), columns())
    signature = runner.signature()
    assert type(signature).from_json(signature.to_json()) == signature
    (variance,) = [spec for spec in signature.dense if spec.name.endswith("moving_variance")]
    assert variance.state == StateRule(update=StateUpdate.MOVING_AVERAGE, momentum=0.5, low=0.0)
