"""Optimizers that Keras runs itself, for a replica, which has every variable whole: of any class, and several at once.

The parameter servers apply formulas element by element, and a ring does the same with those optimizers. The others
need whole variables (Lamb, Muon, a constraint on norms), are classes of the user's, or move a part of the variables
each. All members of a ring call them with the same mean gradient. What they keep is a part of the replica.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from elasticdl.shared.errors import UserError
from elasticdl.shipping.bits import floats_of, gather, scatter
from elasticdl.shipping.pickling import copied
from elasticdl.worker.model.dense import Float32Array
from elasticdl.worker.model.optimizers import translate
from elasticdl.worker.model.own_step import OwnStep

_Schedule = keras.optimizers.schedules.LearningRateSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A trainable variable, and the optimizer that moves it; None: no optimizer does."""

    variable: Any
    optimizer: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """A copy of an optimizer, and the numbers of the variables that it moves."""

    optimizer: Any
    numbers: tuple[int, ...]


def needs_keras(model: Any) -> bool:
    """Whether a variable has a constraint that can't be applied element by element."""
    constraints = [variable.constraint for variable in model.trainable_variables]
    return any(one is not None and type(one) is not keras.constraints.NonNeg for one in constraints)


def trained_by(optimizer: Any, variables: Sequence[Any], own: OwnStep | None) -> list[Trained]:
    """Which optimizer moves each of a model's trainable variables.

    Args:
        optimizer: of the model. If its own ``train_step()`` has several optimizers, it is one of them.
    """
    if own is None:
        return [Trained(variable=one, optimizer=optimizer) for one in variables]
    movers = {id(one): own.movers.get(id(one)) for one in variables}
    if not own.has_several:  # The model file may give another one than compile().
        movers = {key: None if mover is None else optimizer for key, mover in movers.items()}
    return [Trained(variable=one, optimizer=movers[id(one)]) for one in variables]


class KerasOptimizers:
    """Follows ``ps.engine.updater.Updater``. Any thread may call; works on copies of optimizers and variables.

    Args:
        trained: the trainable variables of the model.
        first: the optimizer that gets its learning rate with each update. The others follow their own ones.

    Raises:
        UserError: an option of one of several optimizers can't be honoured.
    """

    def __init__(self, trained: Sequence[Trained], first: Any) -> None:
        self._lock = threading.Lock()
        self._version: object = None
        applied = [first, *(one.optimizer for one in trained if one.optimizer is not None)]
        optimizers = list({id(one): one for one in applied}.values())
        self.classes = " and ".join(type(_inner(one)).__name__ for one in optimizers)
        """Names of the classes of the optimizers, the first one first."""
        if len(optimizers) > 1:
            _check_each(optimizers)
        with tf.device("CPU:0"):
            self._rate, self._scale = tf.Variable(0.0), tf.Variable(1.0)
            self._variables = [_copy_of(one.variable) for one in trained]
            self._copies = [self._prepared(one, trained, is_first=one is first) for one in optimizers]
        self._sizes = [int(np.prod(one.shape)) for one in self._variables]
        self._kept = [variable for one in self._copies for variable in one.optimizer.variables]
        self._initial = np.concatenate([np.empty(0, np.float32), *map(floats_of, self._kept)])
        self._update = tf.function(
            self._apply, input_signature=[tf.TensorSpec([sum(self._sizes)], tf.float32)], autograph=False
        ).get_concrete_function()

    @property
    def initial(self) -> Float32Array:
        """What the optimizers keep before the first update, float32 (kept,): the bits of their variables."""
        return self._initial.copy()

    def update(
        self,
        weights: Float32Array,
        kept: Float32Array,
        gradient: Float32Array,
        *,
        rate: float,
        scale: float,
        version: object,
    ) -> None:
        """Make an update.

        Args:
            weights: float32 (trainable,), changed.
            kept: float32 (kept,), changed.
            gradient: float32 (trainable,).
            rate: of the first optimizer.
            scale: of the learning rates of the others.
            version: another object than at the last call: weights or kept values are not those that it left.
        """
        with self._lock:
            if version is not self._version:
                self._version = None
                self._load(weights, kept)
            self._rate.assign(rate)
            self._scale.assign(scale)
            self._update(tf.constant(gradient))
            gather(self._variables, weights)
            gather(self._kept, kept)
            self._version = version

    def _prepared(self, original: Any, trained: Sequence[Trained], *, is_first: bool) -> _Copy:
        """A copy that can be applied: its learning rate and what decays are given from here."""
        inner = _inner(original)
        decaying = {
            id(copy.value)
            for copy, one in zip(self._variables, trained, strict=True)
            if one.optimizer is original and inner._use_weight_decay(one.variable.value)
        }
        numbers = tuple([number for number, one in enumerate(trained) if one.optimizer is original])
        optimizer = copied(inner)
        optimizer.use_ema = False  # The replica keeps the averages.
        rate = optimizer._learning_rate

        def own_rate() -> Any:
            now = rate(optimizer.iterations) if isinstance(rate, _Schedule) else rate
            return tf.cast(now.value if isinstance(now, keras.Variable) else now, tf.float32) * self._scale

        optimizer._learning_rate = self._rate.value if is_first else own_rate
        optimizer._use_weight_decay = lambda variable: id(variable) in decaying
        optimizer.build([self._variables[number] for number in numbers])
        optimizer.built = True
        return _Copy(optimizer=optimizer, numbers=numbers)

    def _apply(self, gradient: Any) -> None:
        pieces = tf.split(gradient, self._sizes)
        for one in self._copies:
            variables = [self._variables[number] for number in one.numbers]
            gradients = [tf.reshape(pieces[number], self._variables[number].shape) for number in one.numbers]
            one.optimizer.apply(gradients, variables)

    def _load(self, weights: Float32Array, kept: Float32Array) -> None:
        scatter(weights, self._variables)
        scatter(kept, self._kept)


def _inner(optimizer: Any) -> Any:
    return optimizer.inner_optimizer if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else optimizer


def _check_each(optimizers: Sequence[Any]) -> None:
    for one in map(_inner, optimizers):
        translate(one, by_keras=True)
        if one.use_ema:
            raise UserError(
                f"use_ema of {one.name} is not supported, because the model has several optimizers",
                hint="Remove use_ema, or train with one optimizer.",
            )


def _copy_of(variable: Any) -> Any:
    copy = keras.Variable(np.zeros(variable.shape, np.float32), dtype="float32", name=variable.name)
    copy._path = variable.path  # Muon chooses by it.
    copy.constraint = variable.constraint
    return copy
