"""Traced functions that are called without TensorFlow's Python checks of every argument."""

from __future__ import annotations

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
        # Not public: TensorFlow has no public way to call a function with flat tensors. Without it the slow way works.
        inference = getattr(self._function, "inference_fn", None)
        self._run = getattr(inference, "call_preflattened", None)
        self._captured = list(self._function.captured_inputs)
        self._inputs = len(self._function.inputs)

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
