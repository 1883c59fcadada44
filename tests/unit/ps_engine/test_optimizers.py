"""What the table of optimizers refuses, and rates of zero."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.ps.engine.dense import DenseStore
from elasticdl.ps.engine.optimizers import OPTIMIZERS, Update, rule_of
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.ps.engine.rows import RowStore
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.signature import (
    DenseVariable,
    Number,
    Optimizer,
    RowInitializer,
    RowTable,
    VariableKind,
)


@pytest.mark.parametrize(
    ("name", "hyperparameters", "named"),
    [
        ("lamb", {}, "'lamb'"),
        ("adam", {"beta_3": 0.1, "nesterov": True}, "beta_3, nesterov"),
        ("adam", {"beta_1": -0.1}, "beta_1=-0.1"),
        ("sgd", {"momentum": 1.5}, "momentum=1.5"),
        ("sgd", {"momentum": float("nan")}, "momentum=nan"),
        ("ftrl", {"learning_rate_power": 0.5}, "learning_rate_power=0.5"),
        ("adagrad", {"epsilon": "small"}, "epsilon='small'"),
    ],
)
def test_refuses_by_name(name: str, hyperparameters: dict[str, Number], named: str) -> None:
    with pytest.raises(UserError, match=named):
        rule_of(Optimizer(name=name, learning_rate=0.1, hyperparameters=hyperparameters))


@pytest.mark.parametrize(
    ("name", "hyperparameters", "slots"),
    [
        ("sgd", {}, []),
        ("sgd", {"momentum": 0.9}, ["momentum"]),
        ("adagrad", {}, ["accumulator"]),
        ("adam", {}, ["momentum", "velocity"]),
        ("adamw", {"amsgrad": True}, ["momentum", "velocity", "velocity_hat"]),
        ("rmsprop", {}, ["velocity"]),
        ("rmsprop", {"centered": True, "momentum": 0.5}, ["velocity", "average_gradient", "momentum"]),
        ("ftrl", {}, ["accumulator", "linear"]),
        ("adadelta", {}, ["accumulated_grad", "accumulated_delta_var"]),
        ("adamax", {}, ["momentum", "norm"]),
        ("nadam", {}, ["momentum", "velocity"]),
        ("lion", {}, ["momentum"]),
    ],
)
def test_slots_take_no_more_memory_than_the_options_need(
    name: str, hyperparameters: dict[str, Number], slots: list[str]
) -> None:
    rule = rule_of(Optimizer(name=name, learning_rate=0.1, hyperparameters=hyperparameters))
    assert [slot.name for slot in rule.slots] == slots


def test_every_optimizer_that_the_model_names_is_here() -> None:
    kinds = {"sgd", "adagrad", "adam", "adamw", "rmsprop", "ftrl", "adadelta", "adamax", "nadam", "lion"}
    assert set(OPTIMIZERS) == kinds


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("rate", [0.0, 1e-30])
def test_ftrl_changes_nothing_at_a_rate_of_zero_and_learns_afterwards(beta: float, rate: float) -> None:
    optimizer = Optimizer(name="ftrl", learning_rate=rate, hyperparameters={"beta": beta})
    variable = DenseVariable(name="w", shape=(3,), kind=VariableKind.TRAINABLE)
    store, untouched = DenseStore([variable], optimizer), DenseStore([variable], optimizer)
    table = RowTable(name="t", width=3, initializer=RowInitializer(distribution="constant", low=0.5))
    rows = RowStore(table, optimizer, 1, Timeline())
    gradient, ids = np.array([1.0, -2.0, 0.5], np.float32), np.arange(1)
    for each in (store, untouched):
        each.set(np.full(3, 0.5, np.float32))
    store.push(gradient, Update(rate, 0))
    rows.push(RowGradients(ids, gradient[None]), Update(rate, 0))
    assert store.cut().state.tobytes() == untouched.cut().state.tobytes()
    for each in (store, untouched):
        each.push(gradient, Update(0.1, 1))
    rows.push(RowGradients(ids, gradient[None]), Update(0.1, 1))
    assert store.cut().state.tobytes() == untouched.cut().state.tobytes()
    assert np.isfinite(store.cut().state).all()
    pulled = np.empty((1, 3), np.float32)
    rows.pull(ids, pulled)
    assert pulled[0].tobytes() == store.cut().state[0].tobytes()
