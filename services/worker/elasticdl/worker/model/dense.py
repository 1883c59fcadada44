"""The dense variables of a model as one flat float32 vector, in the order of its signature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import DenseVariable, StateRule, VariableKind

Float32Array = NDArray[np.float32]
_ROUNDING = 1e-6
"""Relative error of a difference of float32 values, and of a momentum as it was found."""
_ORDER = (VariableKind.TRAINABLE, VariableKind.STATISTIC, VariableKind.FROZEN)


class DenseVariables:
    """A model's variables on the ps: trainable ones first, then statistics, then frozen ones.

    Integer variables that no training step assigns, seed generators and lookup tables stay in the workers, as built.

    Args:
        decays: whether the optimizer's weight decay applies to a variable.
        rules: of the variables that a training step assigns, by their ``id()``.
        any_constraint: Keras applies constraints.

    Raises:
        UserError: a variable with a constraint other than NonNeg, or a trainable one that is not float32.
    """

    def __init__(
        self,
        model: Any,
        decays: Callable[[Any], bool],
        rules: Mapping[int, StateRule],
        *,
        any_constraint: bool = False,
    ) -> None:
        found = sorted(_census(model, rules), key=lambda place: _ORDER.index(place.kind))
        self._places = [place.number for place in found]
        self.variables = [place.variable for place in found]
        self.specs = tuple(_specs(found, decays, rules, any_constraint=any_constraint))
        self._sizes = [spec.size for spec in self.specs]
        self.trainable_count = sum(spec.kind is VariableKind.TRAINABLE for spec in self.specs)
        self.statistic_count = sum(spec.kind is VariableKind.STATISTIC for spec in self.specs)
        statistics = self._statistics
        sizes = np.array([spec.size for spec in statistics], np.int64)
        self._kept = tf.constant(np.repeat([spec.state.kept for spec in statistics], sizes), tf.float32)
        self._nonnegative = tf.constant(np.repeat([spec.state.low == 0.0 for spec in statistics], sizes), tf.bool)
        self.size = sum(self._sizes)
        self.trainable_size = sum(self._sizes[: self.trainable_count])

    @property
    def trainable(self) -> list[Any]:
        """The variables that the optimizer moves."""
        return self.variables[: self.trainable_count]

    @property
    def statistics(self) -> list[Any]:
        """The variables that the forward pass moves."""
        return self.variables[self.trainable_count : self.trainable_count + self.statistic_count]

    def describe(self) -> list[str]:
        """Lines for the worker's start: what the ps holds, and how batches change layer state."""
        rules = Counter(str(spec.state) for spec in self._statistics)
        state = ", ".join(f"{count} x {rule}" for rule, count in rules.items())
        return [
            f"dense variables: {self.trainable_size:,} trainable of {self.size:,} floats",
            *([f"layer state: {state}"] if state else []),
        ]

    def initial(self) -> Float32Array:
        """The values that the model was built with, flat."""
        return np.concatenate([np.empty(0, np.float32), *(_flat(variable.numpy()) for variable in self.variables)])

    def split(self, flat: Any) -> list[Any]:
        """One float32 tensor per variable out of the flat one."""
        if not self.specs:
            return []
        pieces = tf.split(flat, self._sizes)
        return [tf.reshape(piece, spec.shape) for piece, spec in zip(pieces, self.specs, strict=True)]

    def mapping(self, values: Iterable[Any]) -> list[tuple[Any, Any]]:
        """Pairs for ``keras.StatelessScope``: each variable with its value in its own type."""
        return [(v, tf.cast(value, v.dtype)) for v, value in zip(self.variables, values, strict=True)]

    def named_statistics(self, flat: Float32Array) -> Iterator[tuple[DenseVariable, Float32Array]]:
        """Each statistic with its part of float32 (statistics,)."""
        specs = self._statistics
        bounds = np.cumsum([spec.size for spec in specs])[:-1]
        yield from zip(specs, np.split(flat, bounds), strict=True) if specs else ()

    @property
    def _statistics(self) -> tuple[DenseVariable, ...]:
        return self.specs[self.trainable_count :][: self.statistic_count]

    def state_update(self, old: Any, new: Any) -> Any:
        """What a batch contributes to the statistics: the ``x`` of their ``StateUpdate``, for any value on the ps.

        Args:
            old: float32 (statistics,), the values that were pulled.
            new: float32 (statistics,), the values after the forward pass.
        """
        update = new - self._kept * old
        # Where nothing is added, rounding leaves something of either sign, which would make a variance negative.
        return tf.where((update < 0) & (update > -_ROUNDING * tf.abs(old)) & self._nonnegative, 0.0, update)

    def mark_gathered(self, gathered: Iterable[bool]) -> None:
        """Note which trainable variables have gradients in parts: pushes carry their magnitudes."""
        flags = [*gathered, *([False] * (len(self.specs) - self.trainable_count))]
        self.specs = tuple(replace(spec, gathered=flag) for spec, flag in zip(self.specs, flags, strict=True))

    def assign(self, weights: list[Any], flat: Float32Array) -> None:
        """Set the variables of another instance of the model to the values of a flat vector.

        Args:
            weights: the weights of that instance, in the order of this one's.
        """
        offset = 0
        for place, spec in zip(self._places, self.specs, strict=True):
            value = flat[offset : offset + spec.size].reshape(spec.shape)
            weights[place].assign(tf.cast(value, weights[place].dtype))
            offset += spec.size


def flat_concat(tensors: Iterable[Any]) -> Any:
    """Tensors as one flat float32 tensor."""
    return tf.concat([tf.zeros([0]), *(tf.reshape(tf.cast(tensor, tf.float32), [-1]) for tensor in tensors)], 0)


@dataclass(frozen=True, slots=True)
class _Place:
    number: int
    """Among the model's weights."""
    variable: Any
    kind: VariableKind


def _census(model: Any, rules: Mapping[int, StateRule]) -> Iterator[_Place]:
    for number, variable in enumerate(model.weights):
        if variable.trainable:
            kind = VariableKind.TRAINABLE
        elif id(variable) in rules:
            kind = VariableKind.STATISTIC
        elif keras.backend.is_float_dtype(variable.dtype):
            kind = VariableKind.FROZEN
        else:
            continue
        yield _Place(number, variable, kind)


def _specs(
    found: list[_Place], decays: Callable[[Any], bool], rules: Mapping[int, StateRule], *, any_constraint: bool
) -> Iterator[DenseVariable]:
    seen: Counter[str] = Counter()
    for place in found:
        variable, kind = place.variable, place.kind
        trainable = kind is VariableKind.TRAINABLE
        constraint = variable.constraint if trainable and not any_constraint else None
        if constraint is not None and type(constraint) is not keras.constraints.NonNeg:
            raise UserError(
                f"variable {variable.path} has the constraint {type(constraint).__name__}, which needs whole variables "
                "or code of its own, and a ps holds parts of variables",
                hint="Use a regularizer, or the constraint NonNeg, which a ps applies to each element. "
                "With --distribution_strategy=AllreduceStrategy every constraint works.",
            )
        if trainable and variable.dtype != "float32":
            raise UserError(
                f"variable {variable.path} is {variable.dtype}; trainable variables must be float32",
                hint="Use the mixed_float16 or mixed_bfloat16 policy, which keeps variables in float32.",
            )
        seen[variable.path] += 1
        number = seen[variable.path]
        yield DenseVariable(
            name=variable.path if number == 1 else f"{variable.path}#{number}",
            shape=tuple(variable.shape),
            kind=kind,
            weight_decay=trainable and bool(decays(variable)),
            state=rules.get(id(variable), StateRule()),
            nonnegative=constraint is not None,
        )


def _flat(value: Any) -> Float32Array:
    return np.asarray(value, np.float32).reshape(-1)
