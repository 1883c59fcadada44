"""What each optimizer does to a weight whose gradient is zero, after Keras 3 (``keras/src/optimizers``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from elasticdl.shared.model.rows.missed_updates import (
    Doubles,
    FollowTheLeader,
    MissedUpdates,
    Moments,
    Sign,
    Velocity,
    ZeroGradient,
)
from elasticdl.shared.model.rows.timeline import RateHistory
from elasticdl.shared.model.signature import EMA, Number, Optimizer, RowTable, VariableKind

Values = Mapping[str, Number]
"""Hyperparameters by Keras' names, every one present."""

_MOMENTS: Values = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}

DEFAULTS: Mapping[str, Values] = MappingProxyType(
    {
        "sgd": {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
        "adagrad": {"initial_accumulator_value": 0.1, "epsilon": 1e-7, "weight_decay": 0.0},
        "adam": {**_MOMENTS, "amsgrad": False, "weight_decay": 0.0},
        "adamw": {**_MOMENTS, "amsgrad": False, "weight_decay": 0.004},
        "rmsprop": {"rho": 0.9, "momentum": 0.0, "epsilon": 1e-7, "centered": False, "weight_decay": 0.0},
        "ftrl": {
            "learning_rate_power": -0.5,
            "initial_accumulator_value": 0.1,
            "l1_regularization_strength": 0.0,
            "l2_regularization_strength": 0.0,
            "l2_shrinkage_regularization_strength": 0.0,
            "beta": 0.0,
            "weight_decay": 0.0,
        },
        "adadelta": {"rho": 0.95, "epsilon": 1e-7, "weight_decay": 0.0},
        "adamax": {**_MOMENTS, "weight_decay": 0.0},
        "nadam": {**_MOMENTS, "weight_decay": 0.0},
        "lion": {"beta_1": 0.9, "beta_2": 0.99, "weight_decay": 0.0},
    }
)
"""Keras' hyperparameters with Keras' defaults, by its name of the optimizer in lower case."""

_NADAM_DECAY = 0.96
_NADAM_FACTORS = np.cumprod(1.0 - 0.5 * _NADAM_DECAY ** np.arange(1, 1000, dtype=np.float64))
"""Product of ``1 - 0.5 * 0.96 ** s`` for s = 1..t at ``[t - 1]``; it does not change any more at the end."""


def values_of(optimizer: Optimizer) -> Values:
    """All hyperparameters of a known optimizer, those that it does not name with Keras' defaults; not those of EMA."""
    given = {name: value for name, value in optimizer.hyperparameters.items() if name not in EMA}
    return MappingProxyType({**DEFAULTS[optimizer.name], **given})


def nadam_factor(beta_1: float, t: float) -> float:
    """Keras' ``u`` of update ``t``, counted from 1."""
    return float(beta_1 * (1.0 - 0.5 * _NADAM_DECAY**t))


def nadam_product(beta_1: float, t: int) -> float:
    """Keras' ``_u_product`` after ``t`` updates: it follows from their number, so no ps has to store it."""
    return float(beta_1**t * _NADAM_FACTORS[min(t, _NADAM_FACTORS.size) - 1])


def zero_gradient_of(optimizer: Optimizer) -> ZeroGradient:
    """What an update of a known optimizer does to a weight whose gradient is zero."""
    return _BY_NAME[optimizer.name](values_of(optimizer))


def missed_updates_of(table: RowTable, optimizer: Optimizer, rates: RateHistory) -> MissedUpdates | None:
    """What rows of a table catch up on with a known optimizer; None: nothing happens to a row without a gradient."""
    rule = zero_gradient_of(optimizer.of_table(table))
    if table.kind is not VariableKind.TRAINABLE or rule.changes_nothing:
        return None
    return MissedUpdates(rule, table.width, rates)


def _sgd(values: Values) -> ZeroGradient:
    momentum, decay = values["momentum"], values["weight_decay"]
    if not momentum:
        return ZeroGradient(weight_decay=decay)
    motion = Velocity(momentum=momentum, factor=momentum if values["nesterov"] else 1.0)
    return ZeroGradient(slot_factors=(momentum,), motion=motion, weight_decay=decay)


def _adagrad(values: Values) -> ZeroGradient:
    return ZeroGradient(slot_factors=(1.0,), weight_decay=values["weight_decay"])


def _adam(values: Values) -> ZeroGradient:
    beta_1, beta_2, amsgrad = values["beta_1"], values["beta_2"], bool(values["amsgrad"])

    def correction(before: Doubles) -> Doubles:
        corrections: Doubles = np.sqrt(1 - beta_2 ** (before + 1)) / (1 - beta_1 ** (before + 1))
        return corrections

    return ZeroGradient(
        slot_factors=(beta_1, beta_2, 1.0) if amsgrad else (beta_1, beta_2),
        motion=Moments(
            beta=beta_1,
            # The greatest second moment so far does not change while the second moment decays.
            ratio=1.0 if amsgrad else math.sqrt(beta_2),
            slot=2 if amsgrad else 1,
            correction=correction,
            epsilon=_constant(values["epsilon"]),
        ),
        weight_decay=values["weight_decay"],
    )


def _rmsprop(values: Values) -> ZeroGradient:
    rho, momentum = values["rho"], values["momentum"]
    factors = (rho, *((rho,) if values["centered"] else ()), *((momentum,) if momentum else ()))
    motion = Velocity(momentum=momentum, slot=len(factors) - 1, factor=-1.0) if momentum else None
    return ZeroGradient(slot_factors=factors, motion=motion, weight_decay=values["weight_decay"])


def _ftrl(values: Values) -> ZeroGradient:
    return ZeroGradient(
        slot_factors=(1.0, 1.0),
        motion=FollowTheLeader(
            power=-values["learning_rate_power"],
            shrinkage=2 * values["l2_shrinkage_regularization_strength"],
            l2=2 * values["l2_regularization_strength"],
            l1=values["l1_regularization_strength"],
            beta=values["beta"],
        ),
    )


def _adadelta(values: Values) -> ZeroGradient:
    return ZeroGradient(slot_factors=(values["rho"], values["rho"]), weight_decay=values["weight_decay"])


def _adamax(values: Values) -> ZeroGradient:
    beta_1, beta_2 = values["beta_1"], values["beta_2"]
    return ZeroGradient(
        slot_factors=(beta_1, beta_2),
        motion=Moments(
            beta=beta_1,
            ratio=beta_2,
            is_square=False,
            correction=lambda before: 1 / (1 - beta_1 ** (before + 1)),
            epsilon=_constant(values["epsilon"]),
        ),
        weight_decay=values["weight_decay"],
    )


def _nadam(values: Values) -> ZeroGradient:
    beta_1, beta_2 = values["beta_1"], values["beta_2"]

    def second_correction(before: Doubles) -> Doubles:
        corrections: Doubles = np.sqrt(1 - beta_2 ** (before + 1))
        return corrections

    def correction(before: Doubles) -> Doubles:
        factors = [nadam_factor(beta_1, t + 2) / (1 - nadam_product(beta_1, int(t) + 2)) for t in before]
        return np.array(factors) * second_correction(before)

    return ZeroGradient(
        slot_factors=(beta_1, beta_2),
        motion=Moments(
            beta=beta_1,
            ratio=math.sqrt(beta_2),
            correction=correction,
            epsilon=lambda before: values["epsilon"] * second_correction(before),
        ),
        weight_decay=values["weight_decay"],
    )


def _lion(values: Values) -> ZeroGradient:
    motion = Sign(beta=values["beta_2"]) if values["beta_1"] else None
    return ZeroGradient(slot_factors=(values["beta_2"],), motion=motion, weight_decay=values["weight_decay"])


def _constant(value: float) -> Callable[[Doubles], Doubles]:
    return lambda before: np.full(before.shape, value)


_BY_NAME: Mapping[str, Callable[[Values], ZeroGradient]] = {
    "sgd": _sgd,
    "adagrad": _adagrad,
    "adam": _adam,
    "adamw": _adam,
    "rmsprop": _rmsprop,
    "ftrl": _ftrl,
    "adadelta": _adadelta,
    "adamax": _adamax,
    "nadam": _nadam,
    "lion": _lion,
}
