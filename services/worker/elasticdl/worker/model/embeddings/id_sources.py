"""What the ids of served layers are computed from, read off the traced graph.

A worker computes the ids of a batch first, pulls their rows, and calls the model again to train on them. So both calls
have to give the same ids. They need not if the ids depend on rows, on random numbers, or on weights that training
changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

ROWS_MARK = "elasticdl_served_rows"
"""Name of the operations that stand for served rows."""
ON_ROWS = "its ids depend on another served embedding"
ON_RANDOM_NUMBERS = "its ids depend on random numbers"
ON_WEIGHTS = "its ids depend on weights that training changes"

_SHAPES = {"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"}
"""Operations that use the shape of their inputs only."""
_RANDOM = re.compile(
    "^(?!Stateless).*(Random|Rng|Stateful(Standard|Truncated|Uniform)|TruncatedNormal|Multinomial|CandidateSampler"
    "|NonDeterministic|SampleDistorted|Timestamp)"
)
_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
_EVERY, _BUT_FIRST = slice(None), slice(1, None)
_SIZED_BY = {
    "Where": _EVERY,
    "Unique": _EVERY,
    "UniqueV2": _EVERY,
    "UniqueWithCounts": _EVERY,
    "UniqueWithCountsV2": _EVERY,
    "ListDiff": _EVERY,
    "DynamicPartition": _EVERY,
    "Range": _EVERY,
    "RaggedRange": _EVERY,
    "Fill": slice(0, 1),
    "Reshape": _BUT_FIRST,
    "Slice": _BUT_FIRST,
    "StridedSlice": _BUT_FIRST,
    "Tile": _BUT_FIRST,
    "BroadcastTo": _BUT_FIRST,
    "Pad": _BUT_FIRST,
    "PadV2": slice(1, 2),
}
"""Operations whose output has a shape that depends on the values of these inputs."""


class IdSources:
    """Searches a traced function for what its tensors depend on.

    Args:
        graph: the ``FuncGraph``, traced while random numbers are drawn from a ``BatchRandomness``.
        changing: the model's weights that are different in another step.

    Attributes:
        runs_python: ids that were searched come from Python code, which may draw random numbers unseen.
    """

    def __init__(self, graph: Any, changing: Iterable[Any]) -> None:
        self.runs_python = False
        handles = {id(weight.value.handle) for weight in changing}
        self._changing = {inner.name for outer, inner in graph.captures if id(outer) in handles}
        self._graph = graph
        self._bodies: dict[str, Any] | None = None

    def obstacle(self, ids: Any) -> str:
        """Why another call may give other ids; empty if it can't."""
        waiting, seen = [(ids, True)], set()
        while waiting:
            tensor, by_value = waiting.pop()
            if (tensor.name, by_value) in seen:
                continue
            seen.add((tensor.name, by_value))
            if by_value and (reason := self._reason(tensor)):
                return reason
            waiting.extend(_inputs(tensor.op, by_value=by_value))
        return ""

    def _reason(self, tensor: Any) -> str:
        operation = tensor.op
        if operation.name.rpartition("/")[2].startswith(ROWS_MARK):
            return ON_ROWS
        if tensor.name in self._changing:
            return ON_WEIGHTS
        kinds = {operation.type, *self._kinds_inside(operation.node_def)}
        self.runs_python = self.runs_python or bool(kinds & _PYTHON)
        return ON_RANDOM_NUMBERS if any(_RANDOM.match(kind) for kind in kinds) else ""

    def _kinds_inside(self, node: Any) -> Iterator[str]:
        """Types of the operations in the functions that an operation calls: loops, conditions, ``tf.function``."""
        waiting, seen = list(_functions(node)), set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if self._bodies is None:
                self._bodies = {one.signature.name: one for one in self._graph.as_graph_def().library.function}
            for inner in self._bodies[name].node_def if name in self._bodies else ():
                yield inner.op
                waiting.extend(_functions(inner))


def _inputs(operation: Any, *, by_value: bool) -> Iterator[tuple[Any, bool]]:
    """The inputs of an operation, and whether their values count or only their shapes."""
    inputs = list(operation.inputs)
    if by_value:
        yield from ((one, operation.type not in _SHAPES) for one in inputs)
        return
    sizes = {one.name for one in inputs[_SIZED_BY.get(operation.type, slice(0))]}
    yield from ((one, one.name in sizes) for one in inputs)


def _functions(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (one.name for one in value.list.func)
