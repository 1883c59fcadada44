"""``BatchNormalization(synchronized=True)``: mean and variance of all batches of a round, in the compiled step.

Keras adds up the moments over the replicas of a ``tf.distribute`` strategy, and ignores ``synchronized`` where there is
a mask. Here a training step adds them up through a ``Reducer``. The function of the layer that computes the moments is
replaced once for the class; outside of a training step it works as before. docs/adr/0011-synchronous-training.md
derives what is added up.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from elasticdl.shared.errors import InvariantError, UserError
from elasticdl.worker.ports import Doubles, Reducer

EXCHANGE_MARK = "elasticdl_exchange"
"""In the names of our operations that run Python."""
_BatchNormalization: Any = keras.layers.BatchNormalization


class Alone:
    """The only batch of its round."""

    def reduce(self, position: int, values: Doubles, *, backward: bool) -> Doubles:  # noqa: ARG002 (the protocol's)
        """The values themselves."""
        return values


@dataclass(frozen=True, slots=True)
class _Call:
    """A running step."""

    reducer: Reducer
    scale: float
    """Of the loss, for float16. Contributions of other workers have another one, or none."""


_calls: dict[int, _Call] = {}
_numbers = itertools.count(1)
_step: ContextVar[StepSums | None] = ContextVar("step", default=None)


@contextmanager
def reducing(reducer: Reducer, scale: float) -> Iterator[int]:
    """Let a step that is called with the resulting number add up its moments through ``reducer``; any thread."""
    number = next(_numbers)
    _calls[number] = _Call(reducer, scale)
    try:
        yield number
    finally:
        del _calls[number]


def synchronizes(model: Any, path: Path, *, synchronous: bool) -> bool:
    """Whether a training step of the model needs the other batches of its round.

    Raises:
        UserError: asynchronous batches have no round, or a layer has its own moments.
    """
    found = [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, _BatchNormalization) and getattr(layer, "synchronized", False) and layer.trainable
    ]
    moments = _install() if found else None
    for layer in found:
        if not synchronous:
            raise UserError(
                f"{path}: layer {layer.name!r} has synchronized=True, but asynchronous workers train one batch at a "
                "time, with no other batches to normalise it with",
                hint="Train synchronously with --use_async=false, or remove synchronized=True. The moving mean and "
                "variance, which prediction uses, are shared by all workers anyway.",
            )
        if type(layer)._moments is not moments:
            raise UserError(
                f"{path}: layer {layer.name!r} has synchronized=True, and its class overrides Keras' _moments()",
                hint="Use keras.layers.BatchNormalization, or remove synchronized=True.",
            )
    return bool(found)


class StepSums:
    """The sums of one step, while it is traced. They are taken one after the other, so a step blocks one thread.

    Args:
        call: int64 scalar, number of the running step.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._graph = tf.compat.v1.get_default_graph()
        self._positions = 0
        self._last: list[Any] = []

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Have synchronized layers that are called in this block use these sums."""
        token = _step.set(self)
        try:
            yield
        finally:
            _step.reset(token)

    def reduce(self, values: Any, layer: Any) -> Any:
        """The sum of float64 (n,) over all batches of the round, differentiable.

        Raises:
            UserError: the layer is called in a loop or condition, where batches could differ in what they add up.
        """
        if tf.compat.v1.get_default_graph() is not self._graph:
            raise UserError(
                f"layer {layer.name!r} has synchronized=True and is called inside a loop or a condition",
                hint="Call it outside, or remove synchronized=True.",
            )
        position = self._positions
        self._positions += 1

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def summed(own: Any) -> tuple[Any, Any]:
            return self._exchange(own, position, backward=False), functools.partial(
                self._exchange, position=position, backward=True
            )

        return summed(values)

    def _exchange(self, values: Any, position: int, *, backward: bool) -> Any:
        run = functools.partial(_reduce, position=position, backward=backward)
        with tf.control_dependencies(self._last):
            total = tf.numpy_function(run, [self._call, values], tf.float64, name=EXCHANGE_MARK)
        self._last = [total]
        return tf.ensure_shape(total, values.shape)


def _reduce(number: Any, values: Doubles, *, position: int, backward: bool) -> Doubles:
    call = _calls[int(number)]
    if not backward:
        return call.reducer.reduce(position, values, backward=False)
    return call.reducer.reduce(position, values / call.scale, backward=True) * call.scale


@functools.cache
def _install() -> Any:
    """Replace the function of the layer that computes the moments; returns the new one."""
    original = getattr(_BatchNormalization, "_moments", None)
    if original is None:
        raise InvariantError(f"Keras {keras.__version__} has no BatchNormalization._moments")

    @functools.wraps(original)
    def moments(self: Any, inputs: Any, mask: Any) -> Any:
        step = _step.get()
        if step is None or not self.synchronized:
            return original(self, inputs, mask)
        return _moments(step, self, inputs, mask)

    _BatchNormalization._moments = moments
    return moments


def _moments(step: StepSums, layer: Any, inputs: Any, mask: Any) -> tuple[Any, Any]:
    """Mean and variance of each channel over all batches of the round; see ``BatchNormalization._moments``."""
    axes = layer._reduction_axes
    if mask is None:
        counted = tf.ones_like(inputs)
    else:
        counted = tf.cast(tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(inputs)), inputs.dtype)
        inputs = tf.where(counted > 0, inputs, tf.zeros_like(inputs))
    count = tf.cast(tf.reduce_sum(counted, axes), tf.float64)
    total = tf.cast(tf.reduce_sum(inputs, axes), tf.float64)
    # The squares around the batch's own mean: around zero, float32 would lose a small variance beside a large mean.
    own = tf.stop_gradient(tf.math.divide_no_nan(tf.reduce_sum(inputs, axes, True), tf.reduce_sum(counted, axes, True)))
    squares = tf.cast(tf.reduce_sum(tf.square(inputs - own) * counted, axes), tf.float64)
    centre = tf.cast(tf.reshape(own, [-1]), tf.float64)
    squares += (2 * total - count * centre) * centre
    count, total, squares = tf.split(step.reduce(tf.concat([count, total, squares], 0), layer), 3)
    mean = tf.math.divide_no_nan(total, count)
    variance = tf.maximum(tf.math.divide_no_nan(squares, count) - tf.square(mean), 0.0)
    return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)
