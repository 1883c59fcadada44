"""The formulas against Keras itself: 100 random steps of dense blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.ps.engine.dense import DenseStore
from elasticdl.ps.engine.optimizers import OPTIMIZERS, Update
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.ps.engine.rows import RowStore
from elasticdl.ps.engine.schedules import schedule_of
from elasticdl.shared.model.partitioning import Block
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.rows.zero_gradients import DEFAULTS
from elasticdl.shared.model.signature import (
    DenseVariable,
    Number,
    Optimizer,
    RowInitializer,
    RowTable,
    VariableKind,
)

pytestmark = pytest.mark.tensorflow

STEPS = 100
RATE = 0.05
CLASSES = {
    "sgd": "SGD",
    "adagrad": "Adagrad",
    "adam": "Adam",
    "adamw": "AdamW",
    "rmsprop": "RMSprop",
    "ftrl": "Ftrl",
    "adadelta": "Adadelta",
    "adamax": "Adamax",
    "nadam": "Nadam",
    "lion": "Lion",
}
CASES: list[tuple[str, dict[str, Number]]] = [
    ("sgd", {}),
    ("sgd", {"weight_decay": 0.02}),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.02}),
    ("adagrad", {}),
    ("adagrad", {"initial_accumulator_value": 0.5, "epsilon": 1e-3, "weight_decay": 0.02}),
    ("adam", {}),
    ("adam", {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-5, "weight_decay": 0.02}),
    ("adam", {"amsgrad": True}),
    ("adamw", {}),
    ("adamw", {"amsgrad": True, "weight_decay": 0.1}),
    ("rmsprop", {}),
    ("rmsprop", {"momentum": 0.7, "weight_decay": 0.02}),
    ("rmsprop", {"centered": True, "epsilon": 1e-2}),
    ("rmsprop", {"centered": True, "momentum": 0.7, "rho": 0.8, "epsilon": 1e-2}),
    ("ftrl", {}),
    ("ftrl", {"learning_rate_power": -0.3, "beta": 0.5, "weight_decay": 0.02}),
    (
        "ftrl",
        {
            "l1_regularization_strength": 0.01,
            "l2_regularization_strength": 0.02,
            "l2_shrinkage_regularization_strength": 0.03,
        },
    ),
    ("adadelta", {}),
    ("adadelta", {"rho": 0.8, "epsilon": 1e-3, "weight_decay": 0.02}),
    ("adamax", {}),
    ("adamax", {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-5, "weight_decay": 0.02}),
    ("nadam", {}),
    ("nadam", {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-5, "weight_decay": 0.02}),
    ("nadam", {"beta_1": 0.999}),
    ("lion", {}),
    ("lion", {"beta_1": 0.8, "beta_2": 0.95, "weight_decay": 0.02}),
]
cases = pytest.mark.parametrize(
    ("name", "hyperparameters"), CASES, ids=[f"{name}-{'-'.join(values) or 'defaults'}" for name, values in CASES]
)


def keras_optimizer(name: str, hyperparameters: dict[str, Number], rate: Any = RATE) -> Any:
    import keras

    values: dict[str, Any] = {
        key: value or None if key == "weight_decay" else value for key, value in hyperparameters.items()
    }
    return getattr(keras.optimizers, CLASSES[name])(learning_rate=rate, **values)


def assert_equal_to_rounding(ours: np.ndarray, theirs: np.ndarray) -> None:
    # Rounding of a float32 whose terms are of the size of the largest weight; a wrong formula is off by 1e-3 and more.
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * float(np.abs(theirs).max()))


@cases
def test_dense_update_equals_keras(name: str, hyperparameters: dict[str, Number]) -> None:
    import keras

    generator = np.random.default_rng(7)
    start = generator.normal(size=50).astype(np.float32)
    variable, excluded = keras.Variable(start[:30], name="kernel"), keras.Variable(start[30:], name="bias")
    theirs = keras_optimizer(name, hyperparameters)
    theirs.exclude_from_weight_decay(var_names=["bias"])
    ours = DenseStore(
        (
            DenseVariable(name="kernel", shape=(5, 6), kind=VariableKind.TRAINABLE),
            DenseVariable(name="bias", shape=(20,), kind=VariableKind.TRAINABLE, weight_decay=False),
        ),
        Optimizer(name=name, learning_rate=RATE, hyperparameters=hyperparameters),
    )
    ours.set(start)
    for iteration in range(STEPS):
        gradient = generator.normal(size=50).astype(np.float32)
        theirs.apply([gradient[:30], gradient[30:]], [variable, excluded])
        ours.push(gradient, Update(RATE, iteration))
    state = ours.cut().state
    assert_equal_to_rounding(state[0], np.concatenate([variable.numpy(), excluded.numpy()]))
    # Keras orders its slot variables one way or the other (by slot or by variable): find each of ours among them.
    their_slots = [np.asarray(v) for v in theirs.variables[2:] if len(v.shape)]
    assert len(their_slots) == 2 * (len(state) - 1)
    for part, length in ((slice(0, 30), 30), (slice(30, 50), 20)):
        remaining = [slot for slot in their_slots if slot.size == length]
        for row in state[1:, part]:
            matches = [np.allclose(row, slot, rtol=1e-5, atol=1e-6 * float(np.abs(slot).max())) for slot in remaining]
            remaining.pop(matches.index(True))


@cases
def test_lookups_learn_as_in_keras(name: str, hyperparameters: dict[str, Number]) -> None:
    """The gradient of a lookup has a part for each use of a row. A dense table and rows of a store, by 40 updates."""
    import keras
    import tensorflow as tf

    generator = np.random.default_rng(3)
    rows, width = 6, 4
    start = generator.normal(size=(rows, width)).astype(np.float32)
    table, kernel = keras.Variable(start, name="table"), keras.Variable(start[0], name="kernel")
    theirs = keras_optimizer(name, hyperparameters)
    optimizer = Optimizer(name=name, learning_rate=RATE, hyperparameters=hyperparameters)
    is_gathered = optimizer.power > 0
    dense = DenseStore(
        (
            DenseVariable(name="table", shape=(rows, width), kind=VariableKind.TRAINABLE, gathered=is_gathered),
            DenseVariable(name="kernel", shape=(width,), kind=VariableKind.TRAINABLE),
        ),
        optimizer,
    )
    dense.set(np.concatenate([start.reshape(-1), start[0]]))
    timeline = Timeline()
    stored = RowStore(
        RowTable(name="t", width=width, initializer=RowInitializer(distribution="zeros")), optimizer, 1, timeline
    )
    stored.load_weights(np.arange(rows), start)
    for iteration in range(40):
        used = np.concatenate(
            [np.arange(rows), generator.integers(0, rows, 5)]
        )  # Each row is used, some several times.
        parts = generator.normal(size=(used.size, width)).astype(np.float32)
        plain = generator.normal(size=width).astype(np.float32)
        slices = tf.IndexedSlices(tf.constant(parts), tf.constant(used), tf.constant([rows, width], tf.int64))
        theirs.apply([slices, tf.constant(plain)], [table, kernel])
        gradient, magnitudes = np.zeros((2, rows, width), np.float32)
        np.add.at(gradient, used, parts)
        np.add.at(magnitudes, used, np.abs(parts) ** optimizer.power)
        timeline.rates.record(iteration, RATE)
        update = Update(RATE, iteration)
        dense.push(np.concatenate([gradient.reshape(-1), plain, *([magnitudes.reshape(-1)] * is_gathered)]), update)
        pushed = RowGradients(np.arange(rows), gradient)
        if is_gathered:
            repeated = np.flatnonzero(np.bincount(used) > 1)
            pushed = pushed.repeated(repeated, magnitudes[repeated], optimizer.power)
        stored.push(pushed, update)
        timeline.updates[:] = iteration + 1
    learned = dense.cut().state[0]
    assert_equal_to_rounding(learned[rows * width :], kernel.numpy())
    assert_equal_to_rounding(learned[: rows * width].reshape(rows, width), table.numpy())
    found = np.empty((rows, width), np.float32)
    stored.pull(np.arange(rows), found)
    assert_equal_to_rounding(found, table.numpy())


def test_cut_blocks_together_learn_what_the_whole_learns() -> None:
    variables = (
        DenseVariable(name="a", shape=(7, 3), kind=VariableKind.TRAINABLE),
        DenseVariable(name="b", shape=(5,), kind=VariableKind.TRAINABLE, weight_decay=False),
    )
    optimizer = Optimizer(name="adamw", learning_rate=RATE)
    whole = DenseStore(variables, optimizer)
    first = DenseStore(variables, optimizer, (Block(0, 0, 13),))
    second = DenseStore(variables, optimizer, (Block(0, 13, 21), Block(1, 0, 5)))
    generator = np.random.default_rng(5)
    values = generator.normal(size=26).astype(np.float32)
    for store, part in ((whole, slice(None)), (first, slice(0, 13)), (second, slice(13, 26))):
        store.set(values[part])
    for iteration in range(5):
        gradient = generator.normal(size=26).astype(np.float32)
        for store, part in ((whole, slice(None)), (first, slice(0, 13)), (second, slice(13, 26))):
            store.push(gradient[part].copy(), Update(RATE, iteration))
    parts = np.concatenate([first.cut().state, second.cut().state], axis=1)
    np.testing.assert_array_equal(parts, whole.cut().state)


def test_schedule_and_optimizer_count_iterations_as_keras_does() -> None:
    import keras

    config = {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}
    optimizer = Optimizer(name="adam", learning_rate=0.0, schedule="ExponentialDecay", schedule_config=config)
    theirs = keras_optimizer("adam", {}, keras.optimizers.schedules.ExponentialDecay(**config))
    variable = keras.Variable(np.ones(4, np.float32))
    ours = DenseStore((DenseVariable(name="w", shape=(4,), kind=VariableKind.TRAINABLE),), optimizer)
    ours.set(np.ones(4, np.float32))
    rate = schedule_of(optimizer)
    generator = np.random.default_rng(2)
    for iteration in range(STEPS):
        gradient = generator.normal(size=4).astype(np.float32)
        theirs.apply([gradient], [variable])
        ours.push(gradient, Update(rate(iteration), iteration))
    assert_equal_to_rounding(ours.cut().state[0], variable.numpy())


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_defaults_and_names_are_kerass(name: str) -> None:
    import keras

    config = getattr(keras.optimizers, CLASSES[name])().get_config()
    for key, value in DEFAULTS[name].items():
        assert (config[key] or 0.0) == value, key
    base = set(keras.optimizers.SGD().get_config()) - {"momentum", "nesterov"} - {"weight_decay"}
    assert set(DEFAULTS[name]) == set(config) - base
