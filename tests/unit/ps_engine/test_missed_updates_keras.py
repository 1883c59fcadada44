"""Rows that are touched now and then learn what the rows of a dense Keras variable learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.ps_engine.test_optimizers_keras import RATE, cases, keras_optimizer

from elasticdl.ps.engine.optimizers import Update
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.ps.engine.rows import RowStore
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.signature import Number, Optimizer, RowInitializer, RowTable

pytestmark = pytest.mark.tensorflow

WIDTH = 5
STEPS = 300
IDS = np.array([11, -4, 2**63 - 1, 5, 6, 7], np.int64)
CHANCES = np.array([1.0, 0.5, 0.1, 0.02, 0.0, 0.0])
"""That a row has a gradient in an update. The last but one has one in the first update only, the last one never."""
TABLE = RowTable(name="t", width=WIDTH, initializer=RowInitializer(distribution="normal", low=0.0, high=1.0))

Floats = NDArray[np.float32]
Rate = Callable[[int], float]


class Pair:
    """A row store, and a Keras variable that is the whole table."""

    def __init__(self, name: str, hyperparameters: dict[str, Number], *, decays: bool = True) -> None:
        import keras
        import tensorflow as tf

        self.timeline = Timeline()
        optimizer = Optimizer(name=name, learning_rate=RATE, hyperparameters=hyperparameters)
        self.store = RowStore(replace(TABLE, weight_decay=decays), optimizer, 3, self.timeline)
        self.variable = keras.Variable(self.pulled())
        self.theirs = keras_optimizer(name, hyperparameters)
        if not decays:
            self.theirs.exclude_from_weight_decay(var_list=[self.variable])
        self.theirs.build([self.variable])
        self._apply = tf.function(lambda gradient: self.theirs.apply([gradient], [self.variable]))
        self.generator = np.random.default_rng(1)
        self.updates = 0
        self.shrinks = "l2_shrinkage_regularization_strength" in hyperparameters

    def pulled(self) -> Floats:
        weights = np.empty((IDS.size, WIDTH), np.float32)
        self.store.pull(IDS, weights)
        return weights

    def update(self, rate: float = RATE, chances: NDArray[np.float64] = CHANCES, scale: float = 1.0) -> None:
        touched = np.flatnonzero(self.generator.random(IDS.size) < chances)
        if self.updates == 0:
            touched = np.arange(IDS.size - 1)
        gradient = np.zeros((IDS.size, WIDTH), np.float32)
        gradient[touched] = scale * self.generator.normal(size=(touched.size, WIDTH))
        self.theirs.learning_rate = rate
        self._apply(gradient)
        self.timeline.rates.record(self.updates, rate)
        if touched.size:
            self.store.push(RowGradients(IDS[touched], gradient[touched]), Update(rate, self.updates))
        self.updates += 1
        self.timeline.updates[:] = self.updates

    def assert_equal(self, tolerance: float = 1e-4) -> None:
        theirs = self.variable.numpy()
        if self.shrinks:
            theirs[-1] = 0.0  # What the shrinkage leaves of an untouched row counts as nothing.
        np.testing.assert_allclose(
            self.pulled(), theirs, rtol=0, atol=tolerance * max(1.0, float(np.abs(theirs).max()))
        )


@cases
def test_rows_learn_what_a_dense_table_learns(name: str, hyperparameters: dict[str, Number]) -> None:
    pair = Pair(name, hyperparameters)
    for _ in range(STEPS):
        pair.update()
        if pair.updates in (1, 2, 20, STEPS):
            pair.assert_equal()


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_table_may_be_excluded_from_weight_decay(name: str) -> None:
    pair = Pair(name, {"weight_decay": 0.02}, decays=False)
    initial = pair.pulled()
    for _ in range(STEPS):
        pair.update()
    pair.assert_equal()
    np.testing.assert_array_equal(pair.pulled()[-1], initial[-1])


@pytest.mark.parametrize("name", ["adam", "adamax", "nadam", "adamw", "lion"])
def test_the_learning_rate_of_each_missed_update_counts(name: str) -> None:
    pair = Pair(name, {})
    for step in range(STEPS):
        pair.update(rate=RATE * 0.99**step if step < 200 else RATE)
    pair.assert_equal(1e-3)


@pytest.mark.parametrize(
    ("name", "hyperparameters"),
    [
        ("sgd", {"momentum": 0.9, "weight_decay": 0.05}),
        ("adamw", {"weight_decay": 0.1}),
        ("rmsprop", {"momentum": 0.7, "weight_decay": 0.1}),
    ],
)
@pytest.mark.parametrize("is_smooth", [True, False])
def test_what_slots_have_moved_decays_by_the_later_rates(
    name: str, hyperparameters: dict[str, Number], is_smooth: bool
) -> None:
    pair = Pair(name, hyperparameters)
    for step in range(60):
        steps = 0.1 if step < 10 else 0.05 if step < 20 else 0.01
        pair.update(rate=0.1 * (1 - step / 60) if is_smooth else steps)
        pair.assert_equal(1e-3)


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("name", ["adam", "nadam", "adamax"])
def test_gradients_as_small_as_epsilon(name: str, scale: float) -> None:
    pair = Pair(name, {})
    for _ in range(STEPS):
        pair.update(scale=scale)
    pair.assert_equal(1e-3)


@pytest.mark.parametrize("name", ["adam", "adamw", "rmsprop", "lion", "sgd"])
def test_a_row_that_comes_back_after_a_very_long_time(name: str) -> None:
    pair = Pair(name, {"momentum": 0.9} if name in {"sgd", "rmsprop"} else {})
    never = np.zeros(IDS.size)
    for _ in range(3):
        pair.update()
    for _ in range(2500):
        pair.update(chances=never)
    pair.assert_equal()
    for _ in range(3):
        pair.update(chances=np.ones(IDS.size))
    pair.assert_equal()
