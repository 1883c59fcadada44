"""Models with a ``train_step()`` of their own: it runs unchanged, and the gradients that it applies are recorded.

A step that assigns variables, makes its own tapes and updates its own metrics can't be a pure function of values. So
the values are assigned to the model's variables, and the step is called as ``fit()`` calls it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer  # Keras has no public names for these.
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from elasticdl.shared.errors import UserError
from elasticdl.shipping.gradients import on_parts

LOSS = "loss"
_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


def overrides(model: Any, method: str) -> bool:
    """Whether the class of a model has a ``train_step()``, ``test_step()`` or ``call()`` of its own."""
    return getattr(type(model), method) is not getattr(keras.Model, method)


def has_own_step(model: Any) -> bool:
    """Whether a model has a ``train_step()`` or a ``test_step()`` of its own."""
    return overrides(model, "train_step") or overrides(model, "test_step")


def optimizers_of(model: Any) -> list[Any]:
    """The optimizers that a model has as attributes, without the one that ``compile()`` makes if it is given none."""
    found = [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    found = list({id(one): one for one in found}.values())
    default = keras.optimizers.RMSprop()
    others = [one for one in found if type(one) is not type(default) or _numbers(one) != _numbers(default)]
    return others or found


def _numbers(optimizer: Any) -> dict[str, Any]:
    return {name: value for name, value in optimizer.get_config().items() if name != "name"}


def check_optimizers(model: Any, *, replicated: bool = False) -> None:
    """Refuse a training step with several optimizers, unless every worker has a replica of the model.

    Raises:
        UserError: the model has more than one.
    """
    found = optimizers_of(model)
    if replicated:
        return
    if overrides(model, "train_step") and len(found) > 1:
        names = [name for name, value in vars(model).items() if any(value is one for one in found)]
        raise UserError(
            f"{type(model).__name__} has {len(found)} optimizers ({', '.join(names)}), and the parameter servers apply "
            "one to all variables",
            hint="Use --distribution_strategy=AllreduceStrategy, where every worker applies all of them. Or add the "
            "losses up in train_step(), with tf.stop_gradient() between the parts that must not train each other, and "
            "call apply() of one optimizer. Or call fit() once for each part.",
        )


@dataclass(slots=True)
class Recording:
    """What a training step applies, while it runs.

    Attributes:
        scale: what ``scale_loss()`` multiplies by; None: it returns the loss as it is.
        scaled: the optimizers whose ``scale_loss()`` was called, by their ``id()``.
        optimizers: those that were applied, by their ``id()``.
        movers: by the ``id()`` of a variable: the optimizer that is applied to it.
        applied: (gradient, variable), in the order of the calls.
    """

    model: Any
    scale: Any = None
    scaled: set[int] = field(default_factory=set)
    optimizers: dict[int, Any] = field(default_factory=dict)
    movers: dict[int, Any] = field(default_factory=dict)
    applied: list[tuple[Any, Any]] = field(default_factory=list)
    _graph: Any = field(default_factory=tf.compat.v1.get_default_graph)
    _eager: bool = field(default_factory=tf.executing_eagerly)

    def apply(self, optimizer: Any, gradients: Sequence[Any], variables: Any) -> None:
        """Record a call of ``Optimizer.apply()``."""
        if tf.executing_eagerly() != self._eager or tf.compat.v1.get_default_graph() is not self._graph:
            raise UserError(
                "train_step() applies the optimizer inside of a tf.function, a loop or a condition",
                hint="Apply it in train_step() itself.",
            )
        variables = list(self.model.trainable_variables if variables is None else variables)
        if len(gradients) != len(variables):
            raise UserError(f"train_step() applies {len(gradients)} gradients to {len(variables)} variables")
        self.optimizers[id(optimizer)] = optimizer
        applied = [pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None]
        self.applied += applied
        self.movers |= {id(variable): optimizer for _, variable in applied}

    def gradients(self, variables: Sequence[Any]) -> list[Any]:
        """Float32 gradients of variables, in parts where the step gives them so; zeros where it trains none.

        They are those of the unscaled loss.

        Raises:
            UserError: the step applies a gradient twice, or to something else.
        """
        found: dict[int, Any] = {}
        known = {id(variable) for variable in variables}
        for gradient, variable in self.applied:
            name = getattr(variable, "path", None) or getattr(variable, "name", variable)
            if id(variable) in found:
                raise UserError(
                    f"train_step() applies the optimizer to {name} twice",
                    hint="Add the losses up, and apply the optimizer once: a job updates all variables together.",
                )
            if id(variable) not in known:
                raise UserError(
                    f"train_step() applies the optimizer to {name}, which is no trainable variable of the model",
                    hint="Make its layer an attribute of the model, and leave its trainable as it is.",
                )
            is_scaled = id(self.movers[id(variable)]) in self.scaled or self._scales_all
            divisor = self.scale if self.scale is not None and is_scaled else None
            found[id(variable)] = on_parts(functools.partial(_unscaled, divisor=divisor), gradient)
        return [found[id(one)] if id(one) in found else tf.zeros(one.shape) for one in variables]

    @property
    def _scales_all(self) -> bool:
        """Whether the only optimizer is applied under another object, which it wraps."""
        return bool(self.scaled) and len(self.optimizers) == 1


def _unscaled(gradient: Any, *, divisor: Any) -> Any:
    found = tf.cast(tf.convert_to_tensor(gradient), tf.float32)
    return found if divisor is None else found / divisor


@functools.cache
def _install() -> None:
    """Have all optimizers ask whether a step is recorded. Outside of a recorded step they work as before."""
    for kind in (BaseOptimizer, LossScaleOptimizer):
        if "apply" in vars(kind):
            kind.apply = _recorded_apply(kind.apply)
        if "scale_loss" in vars(kind):
            kind.scale_loss = _recorded_scale(kind.scale_loss)


def _recorded_apply(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        recording = _recording.get()
        if recording is None:
            return original(self, grads, trainable_variables)
        return recording.apply(self, list(grads), trainable_variables)

    return apply


def _recorded_scale(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def scale_loss(self: Any, loss: Any) -> Any:
        recording = _recording.get()
        if recording is None:
            return original(self, loss)
        recording.scaled.add(id(self))
        return loss if recording.scale is None else loss * tf.cast(recording.scale, loss.dtype)

    return scale_loss


@contextmanager
def record(model: Any, scale: Any = None) -> Iterator[Recording]:
    """Have optimizers that are applied in this block record their gradients."""
    _install()
    recording = Recording(model, scale)
    token = _recording.set(recording)
    try:
        yield recording
    finally:
        _recording.reset(token)


def run_step(model: Any, method: str, features: Any, labels: Any, weights: Any) -> Mapping[str, Any]:
    """Call ``train_step()`` or ``test_step()`` with what ``fit()`` would pass.

    Args:
        labels, weights: None if absent.

    Returns:
        Name -> scalar, as the step returns it.
    """
    data = keras.utils.pack_x_y_sample_weight(features, labels, weights)
    compiled = getattr(getattr(type(model), method), "python_function", None)
    logs = compiled(model, data) if compiled else getattr(model, method)(data)
    if not isinstance(logs, Mapping):
        raise UserError(
            f"{method}() of {type(model).__name__} returns {type(logs).__name__}",
            hint='Return a dict of losses and metrics: {"loss": loss}.',
        )
    return {str(name): value for name, value in _flat(logs)}


def _flat(logs: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for name, value in logs.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        else:
            yield name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one call of a step has shown.

    Attributes:
        names: of what it returns -> the metric whose result that is, and the key in a result that is a dict; or None.
        optimizers: those that were applied.
        assigned: the model's weights that it assigns.
        movers: by the ``id()`` of a variable: the optimizer that is applied to it.
    """

    names: Mapping[str, tuple[Any, str] | None]
    optimizers: tuple[Any, ...]
    assigned: tuple[Any, ...]
    movers: Mapping[int, Any]


def try_step(model: Any, method: str, features: Any, labels: Any, weights: Any) -> Trial:
    """Call a step once, uncompiled. Variables that wait for a first call are made; all keep their values."""
    results: dict[int, tuple[Any, str]] = {}
    alive: list[Any] = []
    with restoring() as assigned, _noting_results(model, results, alive), record(model) as recording:
        logs = run_step(model, method, features, labels, weights)
    if isinstance(model, keras.Model) and method == "train_step":
        model.built = True
    own = {id(one) for one in model.weights}
    return Trial(
        names={name: results.get(id(value)) for name, value in logs.items()},
        optimizers=tuple(recording.optimizers.values()),
        assigned=tuple(one for one in assigned if id(one) in own),
        movers=recording.movers,
    )


@contextmanager
def restoring() -> Iterator[list[Any]]:
    """Give all variables that are assigned in this block their values back; yields the list of them."""
    kept: dict[int, tuple[Any, Any]] = {}
    assigned: list[Any] = []
    original = keras.Variable.assign

    @functools.wraps(original)
    def assign(self: Any, value: Any) -> Any:
        if id(self) not in kept:
            kept[id(self)] = self, np.array(self.numpy())
            assigned.append(self)
        return original(self, value)

    keras.Variable.assign = assign
    try:
        yield assigned
    finally:
        keras.Variable.assign = original
        for variable, value in kept.values():
            variable.assign(value)


@contextmanager
def _noting_results(model: Any, results: dict[int, tuple[Any, str]], alive: list[Any]) -> Iterator[None]:
    """Note which metric gives which result.

    Args:
        alive: keeps the results, whose identity counts.
    """

    def noting(metric: Any, result: Callable[[], Any]) -> Any:
        def noted() -> Any:
            found = result()
            alive.append(found)
            for key, value in found.items() if isinstance(found, Mapping) else [("", found)]:
                results[id(value)] = metric, key
            return found

        return noted

    metrics = metrics_of(model)
    for metric in metrics:
        vars(metric)["result"] = noting(metric, metric.result)
    try:
        yield
    finally:
        for metric in metrics:
            del vars(metric)["result"]


def metrics_of(model: Any) -> list[Any]:
    """All metrics of a model, also those that its own ``metrics`` leaves out."""
    found = [*keras.Model.metrics.fget(model), *model.metrics]
    return list({id(one): one for one in found}.values())
