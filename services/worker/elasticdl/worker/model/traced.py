"""Traced functions that are called without TensorFlow's Python checks of every argument."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import tensorflow as tf

Packing = Callable[[list[Any]], Any]
"""Makes a structure of a traced function's flat outputs."""


class TracedFunction:
    """A ``tf.function`` traced for one signature, called with tensors of exactly that signature.

    ``ConcreteFunction.__call__`` binds, checks and casts its arguments in Python, and makes several calls for each
    tensor that it returns. That costs more CPU time than the whole feed of a small batch. The tensors that it is given
    here come from another traced function or were made for the signature, so they are passed on as they are. A wrong
    dtype is still refused, by TensorFlow's runtime.
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


def _runner(function: Any) -> Packing | None:
    """What executes a concrete function with flat tensors; None: this version of TensorFlow has nothing that we know.

    TensorFlow has no public way to call a function with flat tensors. ``call_preflattened`` itself enters three context
    managers and looks at each output, for gradient tapes and graphs around the call: neither is there in a worker.
    """
    inference = getattr(function, "inference_fn", None)
    general: Packing | None = getattr(inference, "call_preflattened", None)
    context: Any = getattr(inference, "_bound_context", None)
    call: Any = getattr(context, "call_function", None)
    kind: Any = getattr(inference, "function_type", None)
    naming: Any = getattr(sys.modules[type(inference).__module__], "InterpolateRuntimeError", None)
    has_handles = any(output.dtype in (tf.resource, tf.variant) for output in function.outputs)
    if inference is None or general is None or None in (context, call, kind, naming) or has_handles:
        return general
    name, outputs, pack = inference.name, len(kind.flat_outputs), _packing_of(function) or kind.pack_output

    def run(tensors: list[Any]) -> Any:
        if not context.executing_eagerly():
            return general(tensors)
        try:
            return pack(call(name, tensors, outputs))
        except tf.errors.OpError as error:
            # The message names the lines of user code that made the operation, as that of ``call_preflattened`` does.
            naming(inference).__exit__(type(error), error, error.__traceback__)
            raise

    return run


def _packing_of(function: Any) -> Packing | None:
    """Makes what the traced Python function returned; None: it has parts that only TensorFlow can make."""
    structure = function.structured_outputs
    places = {id(output): place for place, output in enumerate(function.outputs)}
    if not places or not all(id(leaf) in places for leaf in tf.nest.flatten(structure)):
        return None
    return _packing(structure, places)


def _packing(structure: Any, places: Mapping[int, int]) -> Packing | None:
    """``_packing_of`` one part of the structure.

    Args:
        places: id of a symbolic tensor -> its place among the flat outputs.
    """
    if id(structure) in places:
        return itemgetter(places[id(structure)])
    kind, keys = type(structure), list(structure) if isinstance(structure, dict) else []
    parts = [_packing(part, places) for part in (structure.values() if keys else structure)]
    made = [part for part in parts if part is not None]
    if len(made) < len(parts) or not (kind in (dict, list, tuple) or hasattr(structure, "_fields")):
        return None
    if keys:
        return lambda tensors: {key: part(tensors) for key, part in zip(keys, made, strict=True)}
    make = kind if kind in (list, tuple) else lambda fields: kind(*fields)
    return lambda tensors: make([part(tensors) for part in made])
