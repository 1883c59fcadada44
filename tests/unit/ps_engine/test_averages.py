"""Averages of dense weights (``use_ema``) and non-negative weights, against Keras itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.ps.engine.dense import DenseStore
from elasticdl.ps.engine.optimizers import Update
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.partitioning import Block
from elasticdl.shared.model.signature import DenseVariable, Number, Optimizer, VariableKind

RATE = 0.05
VARIABLES = (
    DenseVariable(name="kernel", shape=(5, 6), kind=VariableKind.TRAINABLE),
    DenseVariable(name="counts", shape=(20,), kind=VariableKind.TRAINABLE, nonnegative=True),
    DenseVariable(name="mean", shape=(4,), kind=VariableKind.STATISTIC),
)


def store(*blocks: Block, **hyperparameters: Number) -> DenseStore:
    return DenseStore(
        VARIABLES, Optimizer(name="adam", learning_rate=RATE, hyperparameters=hyperparameters), blocks or None
    )


def values_of(dense: DenseStore, *, averages: bool) -> Any:
    out = np.empty(dense.size, np.float32)
    dense.pull(out, averages=averages)
    return out


@pytest.mark.tensorflow
@pytest.mark.parametrize("every", [0, 7])
def test_updates_are_those_of_keras(every: int) -> None:
    import keras

    generator = np.random.default_rng(7)
    start = generator.normal(size=54).astype(np.float32)
    variables = [
        keras.Variable(start[:30], name="kernel"),
        keras.Variable(start[30:50], name="counts"),
    ]
    variables[1].constraint = keras.constraints.NonNeg()
    theirs = keras.optimizers.Adam(RATE, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=every or None)
    ours = store(ema_momentum=0.9, **({"ema_overwrite_frequency": every} if every else {}))
    ours.set(start)
    for iteration in range(40):
        gradient = generator.normal(size=50).astype(np.float32)
        theirs.apply([gradient[:30], gradient[30:]], variables)
        ours.push(gradient, Update(RATE, iteration))
        trained = np.concatenate([variable.numpy() for variable in variables])
        np.testing.assert_allclose(values_of(ours, averages=False)[:50], trained, rtol=1e-5, atol=1e-6)
    assert (trained[30:] >= 0).all()
    assert (trained[:30] < 0).any()
    theirs.finalize_variable_values(variables)  # As fit() does at its end.
    averages = np.concatenate([variable.numpy() for variable in variables])
    found = values_of(ours, averages=True)
    np.testing.assert_allclose(found[:50], averages, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[50:], start[50:])  # Layer state has no averages.
    if not every:
        assert np.abs(averages - trained).max() > 1e-2


def test_a_model_without_updates_is_its_own_average() -> None:
    dense = store(ema_momentum=0.9)
    values = np.arange(54, dtype=np.float32)
    dense.set(values)
    np.testing.assert_array_equal(values_of(dense, averages=True), values)


def test_an_optimizer_without_averages_gives_the_values() -> None:
    dense = store()
    dense.set(np.arange(54, dtype=np.float32))
    dense.push(np.ones(50, np.float32), Update(RATE, 0))
    np.testing.assert_array_equal(values_of(dense, averages=True), values_of(dense, averages=False))


def test_a_restored_store_continues_the_averages() -> None:
    generator = np.random.default_rng(3)
    one, other = store(ema_momentum=0.9), store(ema_momentum=0.9)
    one.set(generator.normal(size=54).astype(np.float32))
    for iteration in range(6):
        gradient = generator.normal(size=50).astype(np.float32)
        one.push(gradient, Update(RATE, iteration))
        if iteration > 2:
            other.push(gradient, Update(RATE, iteration))
        if iteration == 2:
            other.load(one.cut())
    cut = np.empty(54, np.float32)
    other.cut().pull(cut, averages=True)
    np.testing.assert_array_equal(cut, values_of(one, averages=True))


def test_parts_of_variables_on_different_ps_are_those_of_the_whole() -> None:
    generator = np.random.default_rng(4)
    start, gradient = generator.normal(size=54).astype(np.float32), generator.normal(size=50).astype(np.float32)
    whole, part = store(ema_momentum=0.5), store(Block(0, 20, 30), Block(1, 0, 7), ema_momentum=0.5)
    whole.set(start)
    part.set(start[20:37])
    for iteration in range(3):
        whole.push(gradient, Update(RATE, iteration))
        part.push(gradient[20:37], Update(RATE, iteration))
    for averages in (False, True):
        np.testing.assert_array_equal(values_of(part, averages=averages), values_of(whole, averages=averages)[20:37])


@pytest.mark.parametrize("momentum", [-0.1, 1.5])
def test_a_momentum_out_of_range_is_refused(momentum: float) -> None:
    with pytest.raises(UserError, match="ema_momentum"):
        store(ema_momentum=momentum)
