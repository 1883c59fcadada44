"""Learning-rate schedules against Keras'."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.ps.engine.schedules import schedule_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import Optimizer

CASES: list[tuple[str, dict[str, Any]]] = [
    ("ExponentialDecay", {"initial_learning_rate": 0.1, "decay_steps": 7, "decay_rate": 0.9}),
    ("ExponentialDecay", {"initial_learning_rate": 0.1, "decay_steps": 7, "decay_rate": 0.9, "staircase": True}),
    ("InverseTimeDecay", {"initial_learning_rate": 0.1, "decay_steps": 7, "decay_rate": 0.9}),
    ("InverseTimeDecay", {"initial_learning_rate": 0.1, "decay_steps": 7, "decay_rate": 0.9, "staircase": True}),
    ("PiecewiseConstantDecay", {"boundaries": [5, 20], "values": [0.1, 0.01, 0.001]}),
    ("PiecewiseConstantDecay", {"boundaries": [5], "values": [0.1, 0.01]}),
    ("PolynomialDecay", {"initial_learning_rate": 0.1, "decay_steps": 30}),
    ("PolynomialDecay", {"initial_learning_rate": 0.1, "decay_steps": 11, "power": 2.0, "cycle": True}),
    ("CosineDecay", {"initial_learning_rate": 0.1, "decay_steps": 30, "alpha": 0.1}),
    ("CosineDecay", {"initial_learning_rate": 0.0, "decay_steps": 30, "warmup_target": 0.1, "warmup_steps": 9}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.1, "first_decay_steps": 7, "m_mul": 0.8, "alpha": 0.01}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.1, "first_decay_steps": 7, "t_mul": 1.0}),
]


def of(schedule: str, **config: object) -> Optimizer:
    return Optimizer(name="sgd", learning_rate=0.0, schedule=schedule, schedule_config=config)


@pytest.mark.tensorflow
@pytest.mark.parametrize(("name", "config"), CASES, ids=[f"{name}-{number}" for number, (name, _) in enumerate(CASES)])
def test_equals_keras(name: str, config: dict[str, Any]) -> None:
    import keras

    theirs = getattr(keras.optimizers.schedules, name)(**config)
    ours = schedule_of(of(name, **theirs.get_config()))
    iterations = [*range(60), 1000]
    expected = [float(theirs(keras.Variable(i, dtype="int64"))) for i in iterations]
    assert [ours(i) for i in iterations] == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_no_schedule_is_the_constant_rate() -> None:
    rate = schedule_of(Optimizer(name="sgd", learning_rate=0.25))
    assert rate(0) == rate(1000) == 0.25


@pytest.mark.parametrize(
    ("optimizer", "named"),
    [
        (of("LinearDecay"), "LinearDecay"),
        (of("CosineDecay", initial_learning_rate=0.1, decay_steps=3, beta=1), "beta"),
        (of("CosineDecay", initial_learning_rate=0.1), "decay_steps"),
        (of("CosineDecay", initial_learning_rate=0.1, decay_steps=0), "decay_steps=0"),
        (of("PiecewiseConstantDecay", boundaries=[1, 2], values=[0.1]), "3 values"),
    ],
)
def test_refuses_by_name(optimizer: Optimizer, named: str) -> None:
    with pytest.raises(UserError, match=named):
        schedule_of(optimizer)
