"""What a traced function computes with: its operations, constants, captured tensors and tables.

Only what the function's results depend on counts. What it prints, and how many threads it asks for, does not.
"""

from __future__ import annotations

import functools
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import lookup_ops  # No public name: the class of all tables.

from elasticdl.worker.model.fingerprint.values import Description, describe

_IGNORED_ATTRIBUTES = frozenset(
    ("value", "token", "container", "shared_name", "metadata", "seed", "seed2", "config", "config_proto", "Targuments")
)
_GENERATORS = ("StateVar", "seed_generator_state")
"""How TensorFlow and Keras name the states of random generators."""
_SCOPES_MAX = 3
"""Levels of name scopes that are told apart: model, block, layer."""
_tables: weakref.WeakSet[Any] = weakref.WeakSet()

Entries = Iterator[tuple[str, Description]]


class TracedGraph:
    """The operations behind some tensors of a traced function.

    Args:
        assigned: variables that the function gives their values before it reads them.
    """

    def __init__(self, name: str, graph: Any, outputs: Any, assigned: Iterable[Any] = ()) -> None:
        self._name = name
        self._assigned = {id(variable.value.handle) for variable in assigned}
        self._graph = graph
        definition = graph.as_graph_def()
        self._functions = {function.signature.name: function for function in definition.library.function}
        self._visited: set[str] = set()
        self._placeholders: list[str] = []
        self._shapes: dict[str, list[Any]] = defaultdict(list)
        """Scope -> what its operations are and where their inputs come from."""
        self._constants: dict[str, list[Any]] = defaultdict(list)
        self.python_functions: list[str] = []
        """Tokens of the Python functions that run with each batch."""
        tensors = tf.nest.flatten(outputs, expand_composites=True)
        self._walk(definition.node, [tensor.op.name for tensor in tensors if tensor is not None])

    def entries(self) -> Entries:
        """What has to be the same in all processes."""
        for scope, constants in self._constants.items():
            if not constants:
                continue
            yield f"a constant in {self._place(scope)}", describe(*constants)
        yield from self._captures()
        for scope, operations in self._shapes.items():
            yield f"the operations in {self._place(scope)}", Description(digest=describe(operations).digest)

    def _place(self, scope: str) -> str:
        return f"{self._name}, {scope}" if scope else self._name

    def _walk(self, nodes: Iterable[Any], outputs: Iterable[str], prefix: str = "") -> None:
        by_name = {node.name: node for node in nodes}
        waiting, seen = list(outputs), set()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in by_name:
                continue
            seen.add(name)
            waiting += _inputs(by_name[name], by_name)
        for node in by_name.values():  # In the order in which they were made.
            if node.name in seen:
                self._add(node, prefix)

    def _add(self, node: Any, prefix: str) -> None:
        scope = "/".join((prefix + node.name).split("/")[:-1][:_SCOPES_MAX])
        if node.op == "Placeholder":
            self._placeholders.append(node.name)
        elif node.op == "Const":
            self._constants[scope].append(tf.make_ndarray(node.attr["value"].tensor))
        given = sorted(node.attr.items())  # Each process has another order.
        self._constants[scope] += [list(value.list.f) for _, value in given if value.list.f]
        if "token" in node.attr:
            self.python_functions.append(node.attr["token"].s.decode())
        attributes = [
            f"{name}={_attribute(value)}"
            for name, value in given
            if not name.startswith("_") and name not in _IGNORED_ATTRIBUTES
        ]
        inputs = [one.replace("^", "") for one in node.input if not one.startswith("^")]
        self._shapes[scope].append([node.op, node.name, inputs, attributes])
        for _, value in given:
            for function in (value.func, *value.list.func):
                self._walk_function(function.name, f"{prefix}{node.name}/")

    def _walk_function(self, name: str, prefix: str) -> None:
        function = self._functions.get(name)
        if function is not None and name not in self._visited:
            self._visited.add(name)
            self._walk(function.node_def, [value.partition(":")[0] for value in function.ret.values()], prefix)

    def _captures(self) -> Entries:
        variables = {id(variable.handle): variable for variable in self._graph.variables}
        inner = {placeholder.op.name: outer for outer, placeholder in self._graph.captures}
        for name in self._placeholders:
            outer = inner.get(name)
            if outer is None:
                continue
            if id(outer) in variables:
                variable = variables[id(outer)]
                is_known = id(outer) in self._assigned
                if not is_known and not any(generator in variable.name for generator in _GENERATORS):
                    yield f"variable {variable.name} in {self._name}", describe(variable.numpy())
            elif outer.dtype == tf.resource:
                yield f"the table in {self._place(name)}", describe(_table(outer))
            elif outer.dtype != tf.variant and hasattr(outer, "numpy"):
                yield f"a constant in {self._place(name)}", describe(outer.numpy())


def _inputs(node: Any, by_name: Mapping[str, Any]) -> Iterator[str]:
    """Names of the nodes whose values a node uses. How parallel a dataset is changes no value."""
    for text in node.input:
        name = text.partition(":")[0]
        if name.startswith("^"):
            continue
        found = by_name.get(name)
        is_setting = found is not None and found.op == "Const" and not found.attr["value"].tensor.tensor_shape.dim
        if not (is_setting and "Dataset" in node.op):
            yield name


def _attribute(value: Any) -> str:
    """An attribute without the generated names of functions, and without floats, which are constants."""
    return "" if value.HasField("func") or value.list.func or value.list.f else value.SerializeToString().hex()


def _table(handle: Any) -> Any:
    """Keys and values of a lookup table, sorted by key; None if it was made before ``remember_tables``."""
    for table in list(_tables):
        if table.resource_handle is handle:
            keys, values = (np.asarray(each) for each in table.export())
            order = np.argsort(keys, kind="stable")
            return [keys[order], values[order]]
    return None


@functools.cache
def remember_tables() -> None:
    """Keep track of the lookup tables that are made from now on. A handle alone does not tell their types."""
    make = lookup_ops.LookupInterface.__init__

    @functools.wraps(make)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _tables.add(self)

    lookup_ops.LookupInterface.__init__ = remember
