"""The optimizers that a ps applies: one table from Keras' name to slots, defaults and update formula.

Formulas are Keras 3's (``keras/src/optimizers``), in float32. A dense block and a row use the same one. A row that had
no gradient in some updates catches up on them: ``ZeroGradient`` says what they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.kernels import formulas
from elasticdl.ps.engine.missed_updates import Doubles, FollowTheLeader, Moments, Sign, Velocity, ZeroGradient
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import EMA, Number, Optimizer

Values = Mapping[str, Number]
"""Hyperparameters by Keras' names, every one present."""


@dataclass(frozen=True, slots=True)
class Update:
    """What varies from one optimizer update to the next.

    Attributes:
        rate: learning rate of this update.
        iteration: optimizer updates before this one (Keras' ``optimizer.iterations``).
    """

    rate: float
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One optimizer variable per weight.

    Attributes:
        name: Keras' name of it.
        initial: value that it starts with.
    """

    name: str
    initial: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An optimizer with its hyperparameters: what a store needs to apply it.

    Attributes:
        formula: number of the formula in ``kernels.formulas``.
        slots: optimizer variables per weight, in the order in which they follow the weight.
        weight_decay: decoupled decay per update, before the rate; 0 for none.
        terms: float32 terms of the formula for one update (``coefficients[2:]``).
        zero_gradient: what an update does to a weight whose gradient is zero.
    """

    formula: int
    slots: tuple[Slot, ...]
    weight_decay: float
    terms: Callable[[Update], tuple[float | np.float32, ...]]
    zero_gradient: ZeroGradient

    def coefficients(self, update: Update, *, decay: bool = True) -> NDArray[np.float32]:
        """The formula's float32 vector for one update; ``decay=False`` leaves the weight decay out."""
        vector = np.zeros(formulas.COEFFICIENTS, np.float32)
        vector[0] = update.rate
        vector[1] = self.weight_decay if decay else 0.0
        terms = self.terms(update)
        vector[2 : 2 + len(terms)] = terms
        return vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One entry of the table.

    Attributes:
        defaults: Keras' hyperparameters with Keras' defaults.
        rule: from hyperparameters, all present, to the rule.
    """

    defaults: Values
    rule: Callable[[Values], Rule]


_AT_MOST_ONE = frozenset({"momentum", "beta_1", "beta_2", "rho"})


def rule_of(optimizer: Optimizer) -> Rule:
    """The rule of an optimizer.

    Raises:
        UserError: an unknown optimizer or hyperparameter, or a value out of its range; all are named.
    """
    family = OPTIMIZERS.get(optimizer.name)
    if family is None:
        raise UserError(
            f"optimizer {optimizer.name!r} is not supported", hint=f"Use one of {', '.join(sorted(OPTIMIZERS))}."
        )
    given = {name: value for name, value in optimizer.hyperparameters.items() if name not in EMA}
    unknown = sorted(set(given) - set(family.defaults))
    if unknown:
        raise UserError(
            f"optimizer {optimizer.name!r}: unknown hyperparameters {', '.join(unknown)}",
            hint=f"It has {', '.join(family.defaults)}.",
        )
    values = dict(family.defaults) | given
    for name, value in values.items():
        _check_value(optimizer.name, name, value)
    return family.rule(MappingProxyType(values))


def _check_value(optimizer: str, name: str, value: object) -> None:
    place = f"optimizer {optimizer!r}: {name}={value!r}"
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise UserError(f"{place} is not a finite number")
    if name == "learning_rate_power":
        if value > 0:
            raise UserError(f"{place} must not be positive")
    elif value < 0:
        raise UserError(f"{place} must not be negative")
    if name in _AT_MOST_ONE and value > 1:
        raise UserError(f"{place} must not exceed 1")


def _constant(value: float) -> Callable[[Doubles], Doubles]:
    return lambda before: np.full(before.shape, value)


def _sgd(values: Values) -> Rule:
    momentum = values["momentum"]
    formula = formulas.SGD
    if momentum:
        formula = formulas.NESTEROV if values["nesterov"] else formulas.MOMENTUM
    return Rule(
        formula=formula,
        slots=(Slot(name="momentum"),) if momentum else (),
        weight_decay=values["weight_decay"],
        terms=lambda _: (momentum,),
        zero_gradient=ZeroGradient(
            slot_factors=(momentum,) if momentum else (),
            motion=Velocity(momentum=momentum, factor=momentum if values["nesterov"] else 1.0) if momentum else None,
            weight_decay=values["weight_decay"],
        ),
    )


def _adagrad(values: Values) -> Rule:
    return Rule(
        formula=formulas.ADAGRAD,
        slots=(Slot(name="accumulator", initial=values["initial_accumulator_value"]),),
        weight_decay=values["weight_decay"],
        terms=lambda _: (values["epsilon"],),
        zero_gradient=ZeroGradient(slot_factors=(1.0,), weight_decay=values["weight_decay"]),
    )


def _adam(values: Values) -> Rule:
    beta_1, beta_2 = values["beta_1"], values["beta_2"]

    def terms(update: Update) -> tuple[float | np.float32, ...]:
        # Bias correction in float32, as Keras: 1 - 0.999 ** t loses digits at small t, and must lose the same ones.
        one, step = np.float32(1), np.float32(update.iteration + 1)
        power_1, power_2 = np.float32(beta_1) ** step, np.float32(beta_2) ** step
        corrected_rate = np.float32(update.rate) * np.sqrt(one - power_2) / (one - power_1)
        return 1 - beta_1, 1 - beta_2, values["epsilon"], corrected_rate

    def correction(before: Doubles) -> Doubles:
        return np.sqrt(1 - beta_2 ** (before + 1)) / (1 - beta_1 ** (before + 1))

    amsgrad = bool(values["amsgrad"])
    names = ("momentum", "velocity", "velocity_hat") if amsgrad else ("momentum", "velocity")
    return Rule(
        formula=formulas.AMSGRAD if amsgrad else formulas.ADAM,
        slots=tuple(Slot(name=name) for name in names),
        weight_decay=values["weight_decay"],
        terms=terms,
        zero_gradient=ZeroGradient(
            slot_factors=(beta_1, beta_2, 1.0)[: len(names)],
            motion=Moments(
                beta=beta_1,
                # The greatest second moment so far does not change while the second moment decays.
                ratio=1.0 if amsgrad else math.sqrt(beta_2),
                slot=len(names) - 1,
                correction=correction,
                epsilon=_constant(values["epsilon"]),
            ),
            weight_decay=values["weight_decay"],
        ),
    )


def _rmsprop(values: Values) -> Rule:
    rho, momentum, centered = values["rho"], values["momentum"], bool(values["centered"])
    names = ["velocity", *(["average_gradient"] if centered else []), *(["momentum"] if momentum else [])]
    return Rule(
        formula=formulas.RMSPROP,
        slots=tuple(Slot(name=name) for name in names),
        weight_decay=values["weight_decay"],
        terms=lambda _: (rho, 1 - rho, values["epsilon"], momentum, float(centered)),
        zero_gradient=ZeroGradient(
            slot_factors=tuple(momentum if name == "momentum" else rho for name in names),
            motion=Velocity(momentum=momentum, slot=len(names) - 1, factor=-1.0) if momentum else None,
            weight_decay=values["weight_decay"],
        ),
    )


def _ftrl(values: Values) -> Rule:
    l2 = values["l2_regularization_strength"]

    def terms(update: Update) -> tuple[float | np.float32, ...]:
        with_beta = l2 + values["beta"] / (2.0 * max(update.rate, formulas.FTRL_RATE_MIN))
        return (
            -values["learning_rate_power"],
            2 * values["l2_shrinkage_regularization_strength"],
            2 * with_beta,
            values["l1_regularization_strength"],
        )

    return Rule(
        formula=formulas.FTRL,
        slots=(Slot(name="accumulator", initial=values["initial_accumulator_value"]), Slot(name="linear")),
        weight_decay=values["weight_decay"],
        terms=terms,
        zero_gradient=ZeroGradient(
            slot_factors=(1.0, 1.0),
            motion=FollowTheLeader(
                power=-values["learning_rate_power"],
                shrinkage=2 * values["l2_shrinkage_regularization_strength"],
                l2=2 * l2,
                l1=values["l1_regularization_strength"],
                beta=values["beta"],
            ),
        ),
    )


def _adadelta(values: Values) -> Rule:
    rho = values["rho"]
    return Rule(
        formula=formulas.ADADELTA,
        slots=(Slot(name="accumulated_grad"), Slot(name="accumulated_delta_var")),
        weight_decay=values["weight_decay"],
        terms=lambda _: (rho, 1 - rho, values["epsilon"]),
        zero_gradient=ZeroGradient(slot_factors=(rho, rho), weight_decay=values["weight_decay"]),
    )


def _adamax(values: Values) -> Rule:
    beta_1 = values["beta_1"]

    def terms(update: Update) -> tuple[float | np.float32, ...]:
        correction = np.float32(1) - np.float32(beta_1) ** np.float32(update.iteration + 1)
        return 1 - beta_1, values["beta_2"], values["epsilon"], correction

    return Rule(
        formula=formulas.ADAMAX,
        slots=(Slot(name="momentum"), Slot(name="norm")),
        weight_decay=values["weight_decay"],
        terms=terms,
        zero_gradient=ZeroGradient(
            slot_factors=(beta_1, values["beta_2"]),
            motion=Moments(
                beta=beta_1,
                ratio=values["beta_2"],
                is_square=False,
                correction=lambda before: 1 / (1 - beta_1 ** (before + 1)),
                epsilon=_constant(values["epsilon"]),
            ),
            weight_decay=values["weight_decay"],
        ),
    )


_NADAM_DECAY = 0.96
_NADAM_FACTORS = np.cumprod(1.0 - 0.5 * _NADAM_DECAY ** np.arange(1, 1000, dtype=np.float64))
"""Product of ``1 - 0.5 * 0.96 ** s`` for s = 1..t at ``[t - 1]``; it does not change any more at the end."""


def _nadam(values: Values) -> Rule:
    beta_1, beta_2 = values["beta_1"], values["beta_2"]

    def product(t: int) -> float:
        """Keras' ``_u_product`` after ``t`` updates: it follows from their number, so no ps has to store it."""
        return float(beta_1**t * _NADAM_FACTORS[min(t, _NADAM_FACTORS.size) - 1])

    def terms(update: Update) -> tuple[float | np.float32, ...]:
        t, one = update.iteration + 1, np.float32(1)
        now, after = (beta_1 * (1.0 - 0.5 * _NADAM_DECAY**step) for step in (t, t + 1))
        return (
            one - np.float32(beta_1),
            one - np.float32(beta_2),
            values["epsilon"],
            after,
            1 - product(t + 1),
            1 - now,
            1 - product(t),
            one - np.float32(beta_2) ** np.float32(t),
        )

    def second_correction(before: Doubles) -> Doubles:
        return np.sqrt(1 - beta_2 ** (before + 1))

    def correction(before: Doubles) -> Doubles:
        after = beta_1 * (1.0 - 0.5 * _NADAM_DECAY ** (before + 2))
        products = np.array([product(int(count) + 2) for count in before])
        corrections: Doubles = after / (1 - products) * second_correction(before)
        return corrections

    return Rule(
        formula=formulas.NADAM,
        slots=(Slot(name="momentum"), Slot(name="velocity")),
        weight_decay=values["weight_decay"],
        terms=terms,
        zero_gradient=ZeroGradient(
            slot_factors=(beta_1, beta_2),
            motion=Moments(
                beta=beta_1,
                ratio=math.sqrt(beta_2),
                correction=correction,
                epsilon=lambda before: values["epsilon"] * second_correction(before),
            ),
            weight_decay=values["weight_decay"],
        ),
    )


def _lion(values: Values) -> Rule:
    beta_1, beta_2, one = np.float32(values["beta_1"]), np.float32(values["beta_2"]), np.float32(1)
    return Rule(
        formula=formulas.LION,
        slots=(Slot(name="momentum"),),
        weight_decay=values["weight_decay"],
        terms=lambda _: (beta_1, one - beta_1, beta_2, one - beta_2),
        zero_gradient=ZeroGradient(
            slot_factors=(values["beta_2"],),
            motion=Sign(beta=values["beta_2"]) if values["beta_1"] else None,
            weight_decay=values["weight_decay"],
        ),
    )


_MOMENTS: Values = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, "weight_decay": 0.0}
_ADAM_DEFAULTS: Values = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, "amsgrad": False}

OPTIMIZERS: Mapping[str, Family] = MappingProxyType(
    {
        "sgd": Family(defaults={"momentum": 0.0, "nesterov": False, "weight_decay": 0.0}, rule=_sgd),
        "adagrad": Family(
            defaults={"initial_accumulator_value": 0.1, "epsilon": 1e-7, "weight_decay": 0.0}, rule=_adagrad
        ),
        "adam": Family(defaults={**_ADAM_DEFAULTS, "weight_decay": 0.0}, rule=_adam),
        "adamw": Family(defaults={**_ADAM_DEFAULTS, "weight_decay": 0.004}, rule=_adam),
        "rmsprop": Family(
            defaults={"rho": 0.9, "momentum": 0.0, "epsilon": 1e-7, "centered": False, "weight_decay": 0.0},
            rule=_rmsprop,
        ),
        "ftrl": Family(
            defaults={
                "learning_rate_power": -0.5,
                "initial_accumulator_value": 0.1,
                "l1_regularization_strength": 0.0,
                "l2_regularization_strength": 0.0,
                "l2_shrinkage_regularization_strength": 0.0,
                "beta": 0.0,
                "weight_decay": 0.0,
            },
            rule=_ftrl,
        ),
        "adadelta": Family(defaults={"rho": 0.95, "epsilon": 1e-7, "weight_decay": 0.0}, rule=_adadelta),
        "adamax": Family(defaults=_MOMENTS, rule=_adamax),
        "nadam": Family(defaults=_MOMENTS, rule=_nadam),
        "lion": Family(defaults={"beta_1": 0.9, "beta_2": 0.99, "weight_decay": 0.0}, rule=_lion),
    }
)
"""Every supported optimizer by Keras' name in lower case."""
