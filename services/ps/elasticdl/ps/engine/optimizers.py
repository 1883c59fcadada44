"""The optimizers that a ps applies: one table from Keras' name to slots and update formula.

Formulas are Keras 3's (``keras/src/optimizers``), in float32. A dense block and a row use the same one. A row that had
no gradient in some updates catches up on them: ``shared.model.rows.zero_gradients`` has what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.kernels import formulas, predictions
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.kernels.missed_updates import FTRL_RATE_MIN
from elasticdl.shared.model.rows.zero_gradients import DEFAULTS, Values, nadam_factor, nadam_product, values_of
from elasticdl.shared.model.signature import EMA, Optimizer


@dataclass(frozen=True, slots=True)
class Update:
    """What varies from one optimizer update to the next.

    Attributes:
        iteration: optimizer updates before this one (Keras' ``optimizer.iterations``).
    """

    rate: float
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One optimizer variable per weight."""

    name: str
    initial: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedMove:
    """How one more update is expected to move weights: as their momentum says."""

    kind: int
    factor: float
    momentum: int = 0
    norm: int = 0
    epsilon: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An optimizer with its hyperparameters: what a store needs to apply it.

    Attributes:
        formula: number of the formula in ``kernels.formulas``.
        slots: optimizer variables per weight, in the order in which they follow the weight.
        weight_decay: decoupled decay per update, before the rate; 0 for none.
        terms: float32 terms of the formula for one update (``coefficients[2:]``).
        expected: the move that the next update is expected to make; None: an optimizer without momentum predicts none.
    """

    formula: int
    slots: tuple[Slot, ...]
    weight_decay: float
    terms: Callable[[Update], tuple[float | np.float32, ...]]
    expected: Callable[[Update], ExpectedMove] | None = None

    def coefficients(self, update: Update, *, decay: bool = True) -> NDArray[np.float32]:
        """The formula's float32 vector for one update; ``decay=False`` leaves the weight decay out."""
        vector = np.zeros(formulas.COEFFICIENTS, np.float32)
        vector[0] = update.rate
        vector[1] = self.weight_decay if decay else 0.0
        terms = self.terms(update)
        vector[2 : 2 + len(terms)] = terms
        return vector


_AT_MOST_ONE = frozenset({"momentum", "beta_1", "beta_2", "rho"})


def rule_of(optimizer: Optimizer) -> Rule:
    """The rule of an optimizer; one that Keras runs has no formula and no slots per weight."""
    if optimizer.is_keras:
        return Rule(formula=-1, slots=(), weight_decay=0.0, terms=lambda _: ())
    rule = OPTIMIZERS.get(optimizer.name)
    if rule is None:
        raise UserError(
            f"optimizer {optimizer.name!r} is not supported", hint=f"Use one of {', '.join(sorted(OPTIMIZERS))}."
        )
    known = DEFAULTS[optimizer.name]
    unknown = sorted(set(optimizer.hyperparameters) - set(EMA) - set(known))
    if unknown:
        raise UserError(
            f"optimizer {optimizer.name!r}: unknown hyperparameters {', '.join(unknown)}",
            hint=f"It has {', '.join(known)}.",
        )
    values = values_of(optimizer)
    for name, value in values.items():
        _check_value(optimizer.name, name, value)
    return rule(values)


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
        expected=(lambda _: ExpectedMove(kind=predictions.MOMENTUM, factor=1.0)) if momentum else None,
    )


def _adagrad(values: Values) -> Rule:
    return Rule(
        formula=formulas.ADAGRAD,
        slots=(Slot(name="accumulator", initial=values["initial_accumulator_value"]),),
        weight_decay=values["weight_decay"],
        terms=lambda _: (values["epsilon"],),
    )


def _adam(values: Values) -> Rule:
    beta_1, beta_2 = values["beta_1"], values["beta_2"]

    def terms(update: Update) -> tuple[float | np.float32, ...]:
        # Bias correction in float32, as Keras: 1 - 0.999 ** t loses digits at small t, and must lose the same ones.
        one, step = np.float32(1), np.float32(update.iteration + 1)
        power_1, power_2 = np.float32(beta_1) ** step, np.float32(beta_2) ** step
        corrected_rate = np.float32(update.rate) * np.sqrt(one - power_2) / (one - power_1)
        return 1 - beta_1, 1 - beta_2, values["epsilon"], corrected_rate

    def expected(update: Update) -> ExpectedMove:
        *_, epsilon, corrected_rate = terms(update)
        norm = len(names) - 1
        return ExpectedMove(
            kind=predictions.MOMENTUM_BY_ROOT, factor=-float(corrected_rate), norm=norm, epsilon=float(epsilon)
        )

    amsgrad = bool(values["amsgrad"])
    names = ("momentum", "velocity", "velocity_hat") if amsgrad else ("momentum", "velocity")
    return Rule(
        formula=formulas.AMSGRAD if amsgrad else formulas.ADAM,
        slots=tuple(Slot(name=name) for name in names),
        weight_decay=values["weight_decay"],
        terms=terms,
        expected=expected,
    )


def _rmsprop(values: Values) -> Rule:
    rho, momentum, centered = values["rho"], values["momentum"], bool(values["centered"])
    names = ["velocity", *(["average_gradient"] if centered else []), *(["momentum"] if momentum else [])]
    return Rule(
        formula=formulas.RMSPROP,
        slots=tuple(Slot(name=name) for name in names),
        weight_decay=values["weight_decay"],
        terms=lambda _: (rho, 1 - rho, values["epsilon"], momentum, float(centered)),
        expected=(lambda _: ExpectedMove(kind=predictions.MOMENTUM, factor=-1.0, momentum=len(names) - 1))
        if momentum
        else None,
    )


def _ftrl(values: Values) -> Rule:
    l2 = values["l2_regularization_strength"]

    def terms(update: Update) -> tuple[float | np.float32, ...]:
        with_beta = l2 + values["beta"] / (2.0 * max(update.rate, FTRL_RATE_MIN))
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
    )


def _adadelta(values: Values) -> Rule:
    rho = values["rho"]
    return Rule(
        formula=formulas.ADADELTA,
        slots=(Slot(name="accumulated_grad"), Slot(name="accumulated_delta_var")),
        weight_decay=values["weight_decay"],
        terms=lambda _: (rho, 1 - rho, values["epsilon"]),
    )


def _adamax(values: Values) -> Rule:
    beta_1 = values["beta_1"]

    def terms(update: Update) -> tuple[float | np.float32, ...]:
        correction = np.float32(1) - np.float32(beta_1) ** np.float32(update.iteration + 1)
        return 1 - beta_1, values["beta_2"], values["epsilon"], correction

    def expected(update: Update) -> ExpectedMove:
        *_, epsilon, correction = terms(update)
        factor = -update.rate / float(correction)
        return ExpectedMove(kind=predictions.MOMENTUM_BY_NORM, factor=factor, norm=1, epsilon=float(epsilon))

    return Rule(
        formula=formulas.ADAMAX,
        slots=(Slot(name="momentum"), Slot(name="norm")),
        weight_decay=values["weight_decay"],
        terms=terms,
        expected=expected,
    )


def _nadam(values: Values) -> Rule:
    beta_1, beta_2 = values["beta_1"], values["beta_2"]

    def terms(update: Update) -> tuple[float | np.float32, ...]:
        t, one = update.iteration + 1, np.float32(1)
        now, after = (nadam_factor(beta_1, step) for step in (t, t + 1))
        return (
            one - np.float32(beta_1),
            one - np.float32(beta_2),
            values["epsilon"],
            after,
            1 - nadam_product(beta_1, t + 1),
            1 - now,
            1 - nadam_product(beta_1, t),
            one - np.float32(beta_2) ** np.float32(t),
        )

    def expected(update: Update) -> ExpectedMove:
        _, _, epsilon, after, after_product, now, product, velocity_correction = map(float, terms(update))
        root = velocity_correction**0.5  # The formula divides the velocity under the root.
        factor = -update.rate * root * (after / after_product + now / product)
        return ExpectedMove(kind=predictions.MOMENTUM_BY_ROOT, factor=factor, norm=1, epsilon=epsilon * root)

    return Rule(
        formula=formulas.NADAM,
        slots=(Slot(name="momentum"), Slot(name="velocity")),
        weight_decay=values["weight_decay"],
        terms=terms,
        expected=expected,
    )


def _lion(values: Values) -> Rule:
    beta_1, beta_2, one = np.float32(values["beta_1"]), np.float32(values["beta_2"]), np.float32(1)
    return Rule(
        formula=formulas.LION,
        slots=(Slot(name="momentum"),),
        weight_decay=values["weight_decay"],
        terms=lambda _: (beta_1, one - beta_1, beta_2, one - beta_2),
        expected=lambda update: ExpectedMove(kind=predictions.SIGN, factor=-update.rate),
    )


OPTIMIZERS: Mapping[str, Callable[[Values], Rule]] = MappingProxyType(
    {
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
)
"""Every supported optimizer by Keras' name in lower case: from all hyperparameters to its rule."""
