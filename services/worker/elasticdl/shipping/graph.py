"""The graph of a functional model: which operation is called with which tensors, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
from keras.src.models.functional import Functional  # Keras has no public names for these.
from keras.src.ops.node import Node


@dataclass(frozen=True, slots=True)
class Symbol:
    """Stands for a tensor of the graph: the output of a call, by the call's number and the output's."""

    call: int
    output: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operation.

    Attributes:
        outputs: shape, dtype, whether it is sparse, and name of each.
        structure: the arguments, with a ``Symbol`` for each tensor.
    """

    operation: Any
    structure: tuple[Any, Any]
    outputs: tuple[tuple[Any, str, bool, str], ...]


def is_graph(model: Any) -> bool:
    """Whether a model is made of inputs and outputs, be it of a class of its own."""
    return isinstance(model, Functional)


def make_input(shape: Any, dtype: str, sparse: bool, ragged: bool, name: str) -> Any:
    """The input layer of a graph."""
    more = {"ragged": True} if ragged else {}
    return keras.layers.InputLayer(batch_shape=shape, dtype=dtype, sparse=sparse, name=name, **more)


def describe(model: Any, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """All that is needed to make a functional model again. ``attributes``: of the model, those of Keras included."""
    numbers: dict[int, Symbol] = {}
    calls: list[Call] = []

    def symbols(structure: Any) -> Any:
        return keras.tree.map_structure(
            lambda leaf: numbers[id(leaf)] if isinstance(leaf, keras.KerasTensor) else leaf, structure
        )

    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in model._nodes_by_depth[depth]:
            for place, tensor in enumerate(node.outputs):
                numbers[id(tensor)] = Symbol(len(calls), place)
            arguments = (node.arguments.args, node.arguments.kwargs)
            outputs = tuple((one.shape, one.dtype, one.sparse, one.name) for one in node.outputs)
            calls.append(Call(node.operation, symbols(arguments), outputs))
    own = {name: value for name, value in attributes.items() if name not in _known()}
    return {
        "calls": calls,
        "inputs": symbols(model._inputs_struct),
        "outputs": symbols(model._outputs_struct),
        "name": model.name,
        "trainable": model.trainable,
        "output_names": list(model.output_names),
        "own": own,
    }


def restore(model: Any, state: Mapping[str, Any]) -> None:
    """Inverse of ``describe``, for a model without attributes. Computes no shapes again: layers are built."""
    from elasticdl.shipping.keras_objects import compile_again

    tensors: list[list[Any]] = []

    def found(structure: Any) -> Any:
        return keras.tree.map_structure(
            lambda leaf: tensors[leaf.call][leaf.output] if isinstance(leaf, Symbol) else leaf, structure
        )

    for call in state["calls"]:
        if isinstance(call.operation, keras.layers.InputLayer):
            tensors.append([call.operation.output])
            continue
        made = [
            keras.KerasTensor(shape, dtype, sparse=sparse, name=name) for shape, dtype, sparse, name in call.outputs
        ]
        args, kwargs = found(call.structure)
        Node(operation=call.operation, call_args=args, call_kwargs=kwargs, outputs=made)
        tensors.append(made)
    Functional.__init__(model, found(state["inputs"]), found(state["outputs"]), name=state["name"])
    own = dict(state["own"])
    compiled = own.pop("_compile_config", None)
    for name, value in own.items():
        setattr(model, name, value)
    model.output_names = state["output_names"]
    if not state["trainable"]:
        vars(model)["_trainable"] = False
    compile_again(model, compiled)


_attributes_of_keras: set[str] = set()


def _known() -> set[str]:
    """Attributes that every functional model has."""
    if not _attributes_of_keras:
        symbol = keras.Input((1,))
        _attributes_of_keras.update(vars(Functional(symbol, keras.layers.Identity()(symbol))))
    return _attributes_of_keras
