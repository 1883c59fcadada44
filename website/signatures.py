"""Signatures as they are in the source: annotations and defaults in the author's words."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

_LINE_MAX = 88


def function_of(function: Callable[..., Any]) -> ast.FunctionDef:
    """The definition of a function or method."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    return definition


def signature(name: str, function: ast.FunctionDef) -> str:
    """How a function is called, without ``self``; a long signature has one line for each parameter."""
    parameters = [each for each in _parameters(function.args) if each != "self"]
    is_class = function.name == "__init__"
    returns = "" if is_class or function.returns is None else f" -> {ast.unparse(function.returns)}"
    line = f"{name}({', '.join(parameters)}){returns}"
    if len(line) <= _LINE_MAX:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){returns}"


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for each, default in zip(positional, defaults, strict=True):
        yield _parameter(each, default)
    if arguments.vararg or arguments.kwonlyargs:
        yield "*" + (ast.unparse(arguments.vararg) if arguments.vararg else "")
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(each, default)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return ast.unparse(parameter)
    return f"{ast.unparse(parameter)}{' = ' if parameter.annotation else '='}{ast.unparse(default)}"
