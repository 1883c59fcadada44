"""The page of the Keras layers and what belongs to them, read from the source: importing it imports TensorFlow."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from website.api import described
from website.markdown import parse_docstring
from website.signatures import signature

_PACKAGE = "elasticdl.layers"
_INTRODUCTION = (
    "Layers for model files. `keras.layers.Embedding` works, too: large ones are moved to the parameter servers by "
    "themselves. This layer is for ids without an upper bound and for combiners. `adapt` is for preprocessing layers.\n"
)


def page() -> str:
    """Markdown of the whole page."""
    parts = ["# Keras layers\n", _INTRODUCTION]
    for layer in _layers():
        parts += [f"## {_PACKAGE}.{layer.name}\n", f"```python\n{signature(layer.name, _start(layer))}\n```\n"]
        parts.append(described(parse_docstring(ast.get_docstring(layer) or "")))
    return "\n".join(parts)


def _layers() -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """The classes and functions that the package exports."""
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None and spec.submodule_search_locations
    (folder,) = map(Path, spec.submodule_search_locations)
    for statement in ast.parse((folder / "__init__.py").read_text()).body:
        if isinstance(statement, ast.ImportFrom):
            names = {alias.name for alias in statement.names}
            source = (folder / f"{(statement.module or '').rpartition('.')[2]}.py").read_text()
            for node in ast.parse(source).body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in names:
                    yield node


def _start(layer: ast.ClassDef | ast.FunctionDef) -> ast.FunctionDef:
    if isinstance(layer, ast.FunctionDef):
        return layer
    (start,) = [node for node in layer.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return start
