"""Dense state: layout, statistics, cuts, placement by bytes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elasticdl.ps.engine.checks import NotFiniteError
from elasticdl.ps.engine.dense import DenseStore
from elasticdl.ps.engine.optimizers import Update
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model.partitioning import Block, dense_parts
from elasticdl.shared.model.placement import PARTITIONS, Placement
from elasticdl.shared.model.signature import DenseVariable, Optimizer, VariableKind

VARIABLES = (
    DenseVariable(name="mean", shape=(2,), kind=VariableKind.STATISTIC),
    DenseVariable(name="kernel", shape=(2, 3), kind=VariableKind.TRAINABLE),
    DenseVariable(name="words", shape=(4,), kind=VariableKind.FROZEN),
    DenseVariable(name="bias", shape=(3,), kind=VariableKind.TRAINABLE),
)
SGD = Optimizer(name="sgd", learning_rate=1.0)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def pulled(store: DenseStore) -> np.ndarray:
    out = np.full(store.size, np.nan, np.float32)
    store.pull(out)
    return out


def test_values_are_trainable_then_statistics_then_frozen() -> None:
    store = DenseStore(VARIABLES, SGD)
    assert store.layout == (Block(1, 0, 6), Block(3, 0, 3), Block(0, 0, 2), Block(2, 0, 4))
    assert (store.trainable, store.statistics, store.size) == (9, 2, 15)
    values = np.arange(15, dtype=np.float32)
    store.set(values)
    gradient, counted = np.ones(9, np.float32), floats(0.5, -0.5)
    store.check(gradient)
    store.push(gradient, Update(2.0, 0))
    store.check_statistics(counted)
    store.update_statistics(counted)
    np.testing.assert_array_equal(pulled(store), [*(values[:9] - 2), 9.5, 9.5, 11, 12, 13, 14])


def test_a_cut_is_independent_and_loads_bit_for_bit() -> None:
    adam = Optimizer(name="adam", learning_rate=0.1)
    store, restored = DenseStore(VARIABLES, adam), DenseStore(VARIABLES, adam)
    store.set(np.arange(15, dtype=np.float32))
    store.push(np.arange(9, dtype=np.float32), Update(0.1, 0))
    store.update_statistics(floats(1, 2))
    at_cut, cut = pulled(store), store.cut()
    store.push(np.ones(9, np.float32), Update(0.1, 1))
    store.update_statistics(floats(1, 2))
    from_cut = np.empty(15, np.float32)
    cut.pull(from_cut)
    np.testing.assert_array_equal(from_cut, at_cut)
    restored.load(cut)
    restored.push(np.ones(9, np.float32), Update(0.1, 1))
    restored.update_statistics(floats(1, 2))
    np.testing.assert_array_equal(restored.cut().state, store.cut().state)
    np.testing.assert_array_equal(pulled(restored), pulled(store))


def test_set_starts_slots_anew() -> None:
    store = DenseStore(VARIABLES, Optimizer(name="adagrad", learning_rate=0.1))
    fresh = store.cut().state[1]
    store.push(np.ones(9, np.float32), Update(0.1, 0))
    store.set(np.zeros(15, np.float32))
    np.testing.assert_array_equal(store.cut().state[1], fresh)


def test_malformed_pushes_are_refused() -> None:
    store = DenseStore(VARIABLES, SGD)
    with pytest.raises(ProtocolError, match=r"gradient: expected contiguous, aligned float32\[9\], got float32\[8\]"):
        store.check(np.zeros(8, np.float32))
    with pytest.raises(ProtocolError, match="layer state"):
        store.check_statistics(floats(1))
    with pytest.raises(NotFiniteError, match="gradient"):
        store.check(np.full(9, np.nan, np.float32))
    with pytest.raises(NotFiniteError, match="layer state mean: 1 of its values would be NaN or infinite"):
        store.check_statistics(floats(0, np.inf))


@pytest.mark.parametrize(
    "blocks", [(Block(1, 0, 7),), (Block(4, 0, 1),), (Block(1, 0, 4), Block(3, 0, 1), Block(1, 3, 6))]
)
def test_blocks_must_be_parts_that_do_not_overlap(blocks: tuple[Block, ...]) -> None:
    with pytest.raises(ProtocolError, match="Block"):
        DenseStore(VARIABLES, SGD, blocks)


def test_a_ps_without_blocks_is_legal() -> None:
    store = DenseStore(VARIABLES, SGD, ())
    store.push(floats(), Update(1.0, 0))
    store.update_statistics(floats())
    assert pulled(store).size == 0


variable_lists = st.lists(st.tuples(st.sampled_from(VariableKind), st.integers(0, 40)), max_size=12).map(
    lambda facts: tuple(
        DenseVariable(name=str(number), shape=(size,), kind=kind) for number, (kind, size) in enumerate(facts)
    )
)


@given(variable_lists, st.integers(1, 7))
@example(tuple(DenseVariable(name=str(n), shape=(n,), kind=VariableKind.TRAINABLE) for n in (9, 40, 40, 40, 40)), 7)
def test_blocks_cover_everything_once_and_evenly(variables: tuple[DenseVariable, ...], parts: int) -> None:
    placed = [part.blocks for part in dense_parts(variables, Placement.even(parts))]
    assert len(placed) == parts
    elements = [(b.variable, e) for blocks in placed for b in blocks for e in range(b.start, b.stop)]
    assert sorted(elements) == [(n, e) for n, variable in enumerate(variables) for e in range(variable.size)]
    for kind in VariableKind:
        loads = [sum(b.size for b in blocks if variables[b.variable].kind is kind) for blocks in placed]
        # A ps has at most one partition more than another, and cuts elements off at either end.
        assert max(loads) - min(loads) <= 1 + math.ceil(sum(loads) / PARTITIONS)
    for blocks in placed:
        DenseStore(variables, SGD, blocks)


@pytest.mark.parametrize(
    ("name", "hyperparameters"),
    [
        ("sgd", {"momentum": 0.9}),
        ("sgd", {"momentum": 0.9, "nesterov": True}),
        ("adam", {}),
        ("adam", {"amsgrad": True}),
        ("adamw", {"weight_decay": 0.0}),
        ("adamax", {}),
        ("nadam", {}),
        ("lion", {}),
        ("rmsprop", {"momentum": 0.5}),
        ("rmsprop", {"momentum": 0.5, "centered": True}),
    ],
)
def test_steady_gradients_move_weights_where_they_were_predicted(
    name: str, hyperparameters: dict[str, float | bool]
) -> None:
    store = DenseStore(VARIABLES, Optimizer(name=name, learning_rate=0.01, hyperparameters=hyperparameters))
    gradient = np.linspace(-1, 1, 9, dtype=np.float32)
    for iteration in range(400):
        store.push(gradient, Update(0.01, iteration))
    before, predicted = pulled(store), np.empty(store.size, np.float32)
    store.predict(predicted, Update(0.01, 400), 3)
    for iteration in range(400, 403):
        store.push(gradient, Update(0.01, iteration))
    np.testing.assert_allclose(predicted - before, pulled(store) - before, rtol=0.02, atol=1e-6)
    assert np.count_nonzero(predicted - before) == 8, "all but the weight whose gradient is 0"


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rmsprop", "ftrl", "adadelta"])
def test_without_momentum_no_move_is_predicted(name: str) -> None:
    store = DenseStore(VARIABLES, Optimizer(name=name, learning_rate=0.1))
    store.set(np.arange(15, dtype=np.float32))
    store.push(np.ones(9, np.float32), Update(0.1, 0))
    predicted = np.empty(store.size, np.float32)
    store.predict(predicted, Update(0.1, 1), 2)
    np.testing.assert_array_equal(predicted, pulled(store))


def test_predicted_weights_keep_their_constraint() -> None:
    variables = (DenseVariable(name="w", shape=(2,), kind=VariableKind.TRAINABLE, nonnegative=True),)
    store = DenseStore(variables, Optimizer(name="sgd", learning_rate=1.0, hyperparameters={"momentum": 0.9}))
    store.set(floats(1.5, 9))
    store.push(floats(1, 1), Update(1.0, 0))
    predicted = np.empty(2, np.float32)
    store.predict(predicted, Update(1.0, 1), 2)
    np.testing.assert_array_equal(predicted, floats(0, 6))
