"""The dense variables of a model as one flat float32 vector, in the order of its signature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import DenseVariable, VariableKind

Float32Array = NDArray[np.float32]
_ORDER = (VariableKind.TRAINABLE, VariableKind.STATISTIC, VariableKind.FROZEN)


class DenseVariables:
    """A model's float variables: trainable ones first, then statistics, then frozen ones.

    Integer variables, seed generators and lookup tables are none of them: they stay as they were built.

    Args:
        model: a built ``keras.Model``.
        decays: whether the optimizer's weight decay applies to a variable.

    Raises:
        UserError: a variable with a constraint, or a trainable one that is not float32.
    """

    def __init__(self, model: Any, decays: Callable[[Any], bool]) -> None:
        found = sorted(_census(model), key=lambda pair: _ORDER.index(pair[1]))
        self.variables = [variable for variable, _ in found]
        self.specs = tuple(_specs(found, decays))
        self._sizes = [spec.size for spec in self.specs]
        self.trainable_count = sum(spec.kind is VariableKind.TRAINABLE for spec in self.specs)
        self.statistic_count = sum(spec.kind is VariableKind.STATISTIC for spec in self.specs)
        self.size = sum(self._sizes)
        self.trainable_size = sum(self._sizes[: self.trainable_count])

    @property
    def statistics(self) -> list[Any]:
        """The variables that the forward pass moves."""
        return self.variables[self.trainable_count : self.trainable_count + self.statistic_count]

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

    def assign(self, variables: list[Any], flat: Float32Array) -> None:
        """Set another model's variables, in the same order, to the values of a flat vector."""
        offset = 0
        for variable, spec in zip(variables, self.specs, strict=True):
            variable.assign(flat[offset : offset + spec.size].reshape(spec.shape))
            offset += spec.size


def flat_concat(tensors: Iterable[Any]) -> Any:
    """Tensors as one flat float32 tensor."""
    return tf.concat([tf.zeros([0]), *(tf.reshape(tf.cast(tensor, tf.float32), [-1]) for tensor in tensors)], 0)


def ordered_variables(model: Any) -> list[Any]:
    """A model's float variables in the order of a signature."""
    return [variable for variable, _ in sorted(_census(model), key=lambda pair: _ORDER.index(pair[1]))]


def _census(model: Any) -> list[tuple[Any, VariableKind]]:
    """Float variables with their kinds, in Keras' order.

    Keras marks a frozen kernel and a BatchNorm statistic alike as not trainable; the layer's own lists tell.
    """
    moving = {
        id(variable)
        for layer in model._flatten_layers()
        if layer.trainable
        for variable in layer._non_trainable_variables
    }
    found = []
    for variable in model.weights:
        if not keras.backend.is_float_dtype(variable.dtype):
            continue
        if variable.trainable:
            kind = VariableKind.TRAINABLE
        else:
            kind = VariableKind.STATISTIC if id(variable) in moving else VariableKind.FROZEN
        found.append((variable, kind))
    return found


def _specs(found: list[tuple[Any, VariableKind]], decays: Callable[[Any], bool]) -> Iterable[DenseVariable]:
    seen: Counter[str] = Counter()
    for variable, kind in found:
        if variable.constraint is not None:
            raise UserError(
                f"variable {variable.path} has the constraint {type(variable.constraint).__name__}, "
                "which can't be kept while several workers update it",
                hint="Use a regularizer instead.",
            )
        trainable = kind is VariableKind.TRAINABLE
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
        )


def _flat(value: Any) -> Float32Array:
    return np.asarray(value, np.float32).reshape(-1)
