"""The page of the Python API: what ``elasticdl.api`` exports, with signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from elasticdl import api
from website.markdown import Docstring, parse_docstring, table, unbroken
from website.signatures import function_of, signature

_HEADINGS = {"Args": "parameter", "Attributes": "attribute", "Raises": "error"}


def page() -> str:
    """Markdown of the whole page."""
    introduction, _, _ = parse_docstring(api.__doc__ or "").text.partition(" May import")
    parts = ["# Python API\n", f"{introduction}\n"]
    names = sorted(api.__all__, key=lambda name: (inspect.isclass(getattr(api, name)), name))
    for name in names:
        member = getattr(api, name)
        parts.append(f"## {name}\n")
        parts.append(_class(name, member) if inspect.isclass(member) else _function(name, member))
    return "\n".join(parts)


def _function(name: str, function: Callable[..., Any]) -> str:
    return f"```python\n{signature(name, function_of(function))}\n```\n\n{_docstring(function)}"


def _class(name: str, cls: type) -> str:
    is_error = issubclass(cls, Exception)
    parts = [] if is_error else [f"```python\n{signature(name, _start(cls))}\n```\n"]
    parts.append(_docstring(cls))
    for member, value in [] if is_error else _members(cls):
        if isinstance(value, property):
            hint = inspect.signature(value.fget).return_annotation  # type: ignore[arg-type]
            parts += [f"### {name}.{member}\n", f"```python\n{member}: {hint}\n```\n", _docstring(value)]
        else:
            parts += [f"### {name}.{member}\n", _function(member, value)]
    return "\n".join(parts)


def _start(cls: type) -> ast.FunctionDef:
    """The constructor; that of a dataclass is made of its fields."""
    if not dataclasses.is_dataclass(cls):
        return function_of(cls.__init__)  # type: ignore[misc]
    (definition,) = ast.parse(inspect.getsource(cls)).body
    fields = [each for each in definition.body if isinstance(each, ast.AnnAssign)]  # type: ignore[attr-defined]
    text = ", ".join(ast.unparse(each) for each in fields)
    (start,) = ast.parse(f"def __init__({text}): ...").body
    assert isinstance(start, ast.FunctionDef)
    return start


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(cls).items():
        if not name.startswith("_") and (isinstance(value, property) or inspect.isfunction(value)):
            yield name, value


def _docstring(member: object) -> str:
    return described(parse_docstring(inspect.getdoc(member) or ""))


def described(docstring: Docstring) -> str:
    """A docstring as Markdown: its text, and a table for each section."""
    parts = [f"{docstring.text}\n"]
    for title, entries in docstring.sections.items():
        if title in _HEADINGS:
            rows = [(unbroken(name), text) for name, text in entries]
            parts.append(table((_HEADINGS[title], "meaning"), rows))
        else:
            parts.append(f"**{title}:** {' '.join(text for _, text in entries)}\n")
    return "\n".join(parts)
