"""Traced functions that are called without TensorFlow's Python checks of every argument."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf


class TracedFunction:
    """A ``tf.function`` traced for one signature, called with tensors of exactly that signature.

    ``ConcreteFunction.__call__`` binds, checks and casts its arguments in Python, which costs more CPU time than the
    whole feed of a small batch. The tensors that it is given here come from another traced function or were made for
    the signature, so they are passed on as they are. A wrong dtype is still refused, by TensorFlow's runtime.

    Args:
        function: the ``tf.function``, with an ``input_signature``.
    """

    def __init__(self, function: Any) -> None:
        self._function = function.get_concrete_function()
        self._captured = list(self._function.captured_inputs)
        self._inputs = len(self._function.inputs)
        self._run = _runner(self._function)

    @property
    def structured_outputs(self) -> Any:
        """The symbolic outputs, in the structure that the traced Python function returned."""
        return self._function.structured_outputs

    @property
    def graph(self) -> Any:
        """The ``FuncGraph``."""
        return self._function.graph

    def __call__(self, *arguments: Any) -> Any:
        """Execute the function; structures of tensors in, a structure of tensors out."""
        tensors = tf.nest.flatten(arguments, expand_composites=True) + self._captured
        if self._run is None or len(tensors) != self._inputs:
            return self._function(*arguments)
        return self._run(tensors)


def _runner(function: Any) -> Callable[[list[Any]], Any] | None:
    """What executes a concrete function with flat tensors; None: this version of TensorFlow has nothing that we know.

    TensorFlow has no public way to call a function with flat tensors. ``call_preflattened`` itself enters three context
    managers and looks at each output, for gradient tapes and graphs around the call: neither is there in a worker.
    """
    inference = getattr(function, "inference_fn", None)
    general: Callable[[list[Any]], Any] | None = getattr(inference, "call_preflattened", None)
    call = getattr(getattr(inference, "_bound_context", None), "call_function", None)
    kind = getattr(inference, "function_type", None)
    naming = getattr(sys.modules[type(inference).__module__], "InterpolateRuntimeError", None)
    has_handles = any(output.dtype in (tf.resource, tf.variant) for output in function.outputs)
    if inference is None or general is None or call is None or kind is None or naming is None or has_handles:
        return general
    name, outputs = inference.name, len(kind.flat_outputs)

    def run(tensors: list[Any]) -> Any:
        if not tf.executing_eagerly():
            return general(tensors)
        try:
            return kind.pack_output(call(name, tensors, outputs))
        except tf.errors.OpError as error:
            # The message names the lines of user code that made the operation, as that of ``call_preflattened`` does.
            naming(inference).__exit__(type(error), error, error.__traceback__)
            raise

    return run
