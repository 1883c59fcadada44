"""The fingerprint of a model: made when a worker starts, and compared with the one that the job was started with."""

from __future__ import annotations

import functools
import json
import types
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops import script_ops  # No public name: where TensorFlow keeps the functions of py_function().

from elasticdl.shared.errors import UserError
from elasticdl.shared.messages.compression import decompressed_object
from elasticdl.worker.model.build import make
from elasticdl.worker.model.device import gpu_name
from elasticdl.worker.model.embeddings.swap import Census
from elasticdl.worker.model.fingerprint.graphs import TracedGraph
from elasticdl.worker.model.fingerprint.layers import is_data, layer_entries
from elasticdl.worker.model.fingerprint.values import Description, describe
from elasticdl.worker.model.runner import ModelRunner
from elasticdl.worker.model.user.feeder import BatchFeeder

GRAPHS = "graph"
LAYERS = "layer"
_VERSIONS = "versions"
_MISSING = Description(digest="", preview="nothing")
_HINT = (
    "Processes of one job make the model separately, so it has to come out the same: sort a vocabulary, give every "
    "random generator a seed, and read neither the clock nor the environment."
)
_FOREIGN = ("tensorflow", "keras", "numpy", "elasticdl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What has to be the same in all processes of a job.

    Attributes:
        entries: name of a thing, as the user knows it -> its description; ``layer`` and ``graph`` entries apart.
        versions: of the libraries that decide how a graph looks, and whether there is a GPU: Keras makes other graphs
            for recurrent layers on one.
    """

    entries: Mapping[str, Mapping[str, Description]]
    versions: str = field(default_factory=lambda: versions(gpu_name()))

    def encode(self) -> bytes:
        """The fingerprint for the job's specification; a few kilobytes."""
        plain = {kind: {name: astuple(one) for name, one in found.items()} for kind, found in self.entries.items()}
        return zlib.compress(json.dumps({_VERSIONS: self.versions, **plain}).encode(), 9)

    @classmethod
    def decode(cls, data: bytes) -> Fingerprint:
        """Inverse of ``encode``."""
        plain = json.loads(decompressed_object(data))
        versions = plain.pop(_VERSIONS)
        entries = {
            kind: {
                name: Description(digest=digest, floats=tuple(floats), preview=preview)
                for name, (digest, floats, preview) in found.items()
            }
            for kind, found in plain.items()
        }
        return cls(entries=entries, versions=versions)

    def differences(self, other: Fingerprint) -> list[str]:
        """What differs, most telling first: ``the vocabulary of layer 'x': ['b', 'a'] instead of ['a', 'b']``.

        Args:
            other: the one that was expected. Graphs of other ``versions`` are not compared.
        """
        kinds = (LAYERS, GRAPHS) if self.versions == other.versions else (LAYERS,)
        found = []
        for kind in kinds:
            mine, expected = self.entries.get(kind, {}), other.entries.get(kind, {})
            for name in dict.fromkeys((*expected, *mine)):
                here, there = mine.get(name, _MISSING), expected.get(name, _MISSING)
                if not here.equals(there):
                    shown = f": {here.preview} instead of {there.preview}" if here.preview or there.preview else ""
                    found.append(name + shown)
        return found

    def check(self, expected: Fingerprint, path: Path, problem: str) -> None:
        """Compare with another model. Raises ``UserError``: it is another model; names the first difference."""
        found = self.differences(expected)
        if found:
            more = f" ({len(found) - 1} more differences)" if len(found) > 1 else ""
            raise UserError(f"{path}: {problem}. It differs in {found[0]}{more}", hint=_HINT)


def versions(gpu: str) -> str:
    """What decides how a graph looks, besides the model; ``gpu``: name of the GPU; empty if absent."""
    return f"tensorflow {tf.__version__}, keras {keras.__version__}" + (", on a GPU" if gpu else "")


def fingerprint(runner: ModelRunner, feeder: BatchFeeder) -> Fingerprint:
    """Describe a model and the feed of its training data; both have been traced."""
    graphs = []
    if traced := runner.step.traced("train", runner.example.spec):
        assigned = runner.built.own.variables if runner.built.own else ()
        graphs.append(TracedGraph("the model or loss", traced.graph, traced.structured_outputs.loss, assigned))
    if traced := feeder.traced:
        graphs.append(TracedGraph("the feed", traced.graph, traced.structured_outputs))
    return Fingerprint(
        entries={
            LAYERS: _layers(runner.built.model),
            GRAPHS: _numbered(_graph_entries(graphs, [] if graphs else _user_functions(runner))),
        }
    )


def check_made_again(runner: ModelRunner) -> None:
    """Make the model a second time, as an export does, and compare."""
    kept = dict(runner.built.census.kept)
    census = Census(swap_bytes_min=runner.settings.swap_bytes_min, kept=kept)
    again = make(runner.module, runner.example, census, seed=runner.settings.seed)
    expected, found = (Fingerprint(entries={LAYERS: _layers(model)}) for model in (runner.built.model, again))
    found.check(expected, runner.module.path, f"a second call of {runner.module.file.symbol}() returns another model")


def _layers(model: Any) -> dict[str, Description]:
    served = {id(variable) for variable in model.weights if keras.backend.is_float_dtype(variable.dtype)}
    return _numbered(layer_entries(model, served))


def _graph_entries(graphs: list[TracedGraph], functions: list[Any]) -> Iterator[tuple[str, Description]]:
    yield from captured_data([*functions, *_python_functions(graphs)])
    for graph in graphs:
        yield from graph.entries()


def _user_functions(runner: ModelRunner) -> list[Any]:
    """All functions that run with each batch if nothing is traced."""
    names = ("feed_batch", "feed", "loss")
    return [
        *(runner.module.function(name) for name in names),
        *(type(layer).call for layer in runner.built.model._flatten_layers()),
    ]


def _python_functions(graphs: Iterable[TracedGraph]) -> Iterator[Any]:
    for graph in graphs:
        for token in graph.python_functions:
            yield script_ops._py_funcs._funcs.get(token.encode()) or script_ops._py_funcs._funcs.get(token)


def _numbered(entries: Iterable[tuple[str, Description]]) -> dict[str, Description]:
    """Entries by name; those with a name that was used before get a number."""
    found: dict[str, Description] = {}
    counts: dict[str, int] = {}
    for name, description in entries:
        counts[name] = counts.get(name, 0) + 1
        found[name if counts[name] == 1 else f"{name} ({counts[name]})"] = description
    return found


def captured_data(functions: Iterable[Any]) -> Iterator[tuple[str, Description]]:
    """(name as in the source, description) of the data that functions refer to, directly or through others.

    A traced function has such data in its graph. For functions that run as Python with each batch, it is found here.
    """
    waiting = [(function, "") for function in functions]
    seen: set[int] = set()
    while waiting:
        value, name = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        match value:
            case functools.partial():
                waiting += [(part, "functools.partial") for part in (value.func, *value.args, *value.keywords.values())]
            case types.MethodType():
                waiting.append((value.__func__, name))
            case types.FunctionType():
                waiting += _references(value)
            case _ if is_data(value):
                yield f"variable {name!r}", describe(value)
            case _ if hasattr(value, "_func"):  # TensorFlow's wrapper of a function for py_function().
                waiting.append((value._func, name))


def _references(function: types.FunctionType) -> Iterator[tuple[Any, str]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield cell.cell_contents, name
        except ValueError:  # The variable has not been set yet.
            continue
    yield from ((value, f"default of {function.__name__}()") for value in function.__defaults__ or ())
    if (function.__module__ or "").partition(".")[0] in _FOREIGN:
        return
    for name in _names(code):
        if name in function.__globals__:
            yield function.__globals__[name], name


def _names(code: types.CodeType) -> Iterator[str]:
    """Global names that a function and the functions inside it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
