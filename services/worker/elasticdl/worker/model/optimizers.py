"""The optimizer of the user's Keras model as a ``shared.model.signature`` value, and what of it the worker keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import keras

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import EMA, Number, Optimizer

_NAMES = {
    keras.optimizers.SGD: "sgd",
    keras.optimizers.Adagrad: "adagrad",
    keras.optimizers.Adam: "adam",
    keras.optimizers.AdamW: "adamw",
    keras.optimizers.RMSprop: "rmsprop",
    keras.optimizers.Ftrl: "ftrl",
    keras.optimizers.Adadelta: "adadelta",
    keras.optimizers.Adamax: "adamax",
    keras.optimizers.Nadam: "nadam",
    keras.optimizers.Lion: "lion",
}
_REASONS = {
    "Lamb": "each update needs the norm of a whole variable, and a ps holds a part of it",
    "Adafactor": "each update needs means over whole rows and columns of a variable, and a ps holds a part of it",
    "Muon": "each update needs a whole matrix, and a ps holds a part of it",
    "ScheduleFreeAdamW": "it evaluates and exports other weights than those that it trains",
    "MultiOptimizer": "a job has one optimizer for all variables",
}
"""Why the formulas of other optimizers of Keras can't be applied element by element on a ps."""
_NOWHERE = {"ScheduleFreeAdamW", "MultiOptimizer"}
"""Those that a replica can't run either."""
_SCHEDULES = (
    keras.optimizers.schedules.ExponentialDecay,
    keras.optimizers.schedules.PiecewiseConstantDecay,
    keras.optimizers.schedules.PolynomialDecay,
    keras.optimizers.schedules.InverseTimeDecay,
    keras.optimizers.schedules.CosineDecay,
    keras.optimizers.schedules.CosineDecayRestarts,
)
_ON_WORKER = {"clipnorm", "global_clipnorm", "clipvalue"}
_IGNORED = {"name", "learning_rate"}
_REFUSED = {
    "loss_scale_factor": "use the mixed_float16 policy, whose loss scale adapts itself",
    "gradient_accumulation_steps": "use --grads_to_wait",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedOptimizer:
    """An optimizer, split between ps and worker.

    Attributes:
        clipnorm: largest norm of one variable's gradient, 0 when off; on the worker.
        global_clipnorm: largest norm of the whole gradient, 0 when off; on the worker.
        clipvalue: largest magnitude of a gradient's element, 0 when off; on the worker.
        decays: whether the optimizer's weight decay applies to a ``keras.Variable``. As in ``fit()``, patterns are
            searched in the name of its TensorFlow variable, which has the names of layers, unlike its own.
        rate: learning rate after a number of updates.
        loss_scale: initial loss scale of a LossScaleOptimizer, 0 without one.
        by_keras: Keras applies it to whole variables, in each replica.
    """

    optimizer: Optimizer
    clipnorm: float
    global_clipnorm: float
    clipvalue: float
    decays: Callable[[Any], bool]
    rate: Callable[[int], float]
    loss_scale: float = 0.0
    loss_scale_growth_steps: int = 2000
    by_keras: bool = False


def translate(keras_optimizer: Any, *, replicated: bool = False, by_keras: bool = False) -> TranslatedOptimizer:
    """Split a Keras optimizer between ps and worker. Raises ``UserError`` for what can't be honoured.

    Args:
        replicated: the model is a replica, where Keras may run the optimizers that have no formula here.
        by_keras: Keras runs it even if it has one. Then it clips the mean gradient of an update itself.
    """
    loss_scale, growth_steps = 0.0, 2000
    if isinstance(keras_optimizer, keras.optimizers.LossScaleOptimizer):
        loss_scale, growth_steps = float(keras_optimizer.initial_scale), int(keras_optimizer.dynamic_growth_steps)
        keras_optimizer = keras_optimizer.inner_optimizer
    name = _NAMES.get(type(keras_optimizer))
    kind = type(keras_optimizer).__name__
    by_keras = by_keras or (replicated and name is None)
    if kind in _NOWHERE or (name is None and not by_keras):
        known = ", ".join(kind.__name__ for kind in _NAMES)
        reason = f": {_REASONS[kind]}" if kind in _REASONS else ""
        raise UserError(f"the optimizer {kind} is not supported{reason}", hint=f"Use one of {known}.")
    schedule = keras_optimizer._learning_rate
    rate_fields, rate = _rate_fields(schedule), _rate_function(schedule)
    keras_optimizer._learning_rate = None  # get_config() would serialize it, and fail for one without a config.
    config = keras_optimizer.get_config()
    keras_optimizer._learning_rate = schedule  # A train_step() may read it.
    for option, instead in _REFUSED.items():
        if config.pop(option, None):
            raise UserError(f"{option} of the optimizer is not supported", hint=f"Remove it: {instead}.")
    clipping = {option: float(config.pop(option, 0.0) or 0.0) for option in _ON_WORKER}
    if not config.pop("use_ema", False):
        for option in EMA:
            config.pop(option, None)
    return TranslatedOptimizer(
        optimizer=Optimizer(
            name=name or kind,
            **rate_fields,
            hyperparameters=MappingProxyType(_hyperparameters(config, skips_others=by_keras)),
        ),
        **(dict.fromkeys(_ON_WORKER, 0.0) if by_keras else clipping),
        by_keras=by_keras,
        decays=lambda variable: bool(keras_optimizer._use_weight_decay(variable.value)),
        rate=rate,
        loss_scale=loss_scale,
        loss_scale_growth_steps=growth_steps,
    )


def set_by_tasks(translated: TranslatedOptimizer) -> TranslatedOptimizer:
    """The optimizer for a job whose callbacks may set the learning rate; one with a schedule stays as it is."""
    if translated.optimizer.schedule:
        return translated
    return replace(translated, optimizer=replace(translated.optimizer, rate_from_worker=True))


def _hyperparameters(config: dict[str, Any], *, skips_others: bool) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for option, value in sorted(config.items()):
        if option in _IGNORED or value is None:
            continue
        if not isinstance(value, bool | int | float):
            if skips_others:
                continue
            raise UserError(f"the optimizer's option {option}={value!r} is not a number")
        numbers[option] = value
    return numbers


def _is_schedule(rate: Any) -> bool:
    return isinstance(rate, keras.optimizers.schedules.LearningRateSchedule)


def _rate_fields(rate: Any) -> dict[str, Any]:
    if type(rate) in _SCHEDULES:
        config = {key: value for key, value in rate.get_config().items() if key != "name"}
        return {
            "learning_rate": float(rate(0)),
            "schedule": type(rate).__name__,
            "schedule_config": MappingProxyType(config),
        }
    if _is_schedule(rate):
        return {"learning_rate": float(rate(0)), "rate_from_worker": True}
    return {"learning_rate": _constant(rate)}


def _rate_function(rate: Any) -> Callable[[int], float]:
    if _is_schedule(rate):
        return lambda iteration: float(rate(iteration))
    constant = _constant(rate)
    return lambda _: constant


def _constant(rate: Any) -> float:
    if isinstance(rate, keras.Variable):
        return float(rate.numpy())
    raise UserError("learning_rate is a function", hint="Subclass keras.optimizers.schedules.LearningRateSchedule.")
