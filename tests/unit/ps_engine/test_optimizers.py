"""What the table of optimizers refuses."""

from __future__ import annotations

import pytest

from elasticdl.ps.engine.optimizers import OPTIMIZERS, rule_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import Number, Optimizer


@pytest.mark.parametrize(
    ("name", "hyperparameters", "named"),
    [
        ("lion", {}, "'lion'"),
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
    ],
)
def test_slots_take_no_more_memory_than_the_options_need(
    name: str, hyperparameters: dict[str, Number], slots: list[str]
) -> None:
    rule = rule_of(Optimizer(name=name, learning_rate=0.1, hyperparameters=hyperparameters))
    assert [slot.name for slot in rule.slots] == slots


def test_every_optimizer_that_the_model_names_is_here() -> None:
    assert set(OPTIMIZERS) == {"sgd", "adagrad", "adam", "adamw", "rmsprop", "ftrl"}
