"""The page of the Python API: what ``elasticdl.api`` exports, with signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from elasticdl import api
from website.markdown import parse_docstring, table, unbroken

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
    return f"```python\n{_signature(name, function)}\n```\n\n{_docstring(function)}"


def _class(name: str, cls: type) -> str:
    is_error = issubclass(cls, Exception)
    parts = [] if is_error else [f"```python\n{_signature(name, cls)}\n```\n"]
    parts.append(_docstring(cls))
    for member, value in [] if is_error else _members(cls):
        if isinstance(value, property):
            hint = inspect.signature(value.fget).return_annotation  # type: ignore[arg-type]
            parts += [f"### {name}.{member}\n", f"```python\n{member}: {hint}\n```\n", _docstring(value)]
        else:
            parts += [f"### {name}.{member}\n", _function(member, value)]
    return "\n".join(parts)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(cls).items():
        if not name.startswith("_") and (isinstance(value, property) or inspect.isfunction(value)):
            yield name, value


def _signature(name: str, function: Callable[..., Any]) -> str:
    """The signature, one line for each parameter if it is long, without ``self``."""
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    signature = signature.replace(parameters=parameters)
    line = f"{name}{signature}".replace("'", "")
    if len(line) <= 88:
        return line
    shown = [str(each).replace("'", "") for each in parameters]
    first_keyword = next((i for i, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY), None)
    if first_keyword is not None:
        shown.insert(first_keyword, "*")
    returns = (
        "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}".replace("'", "")
    )
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){returns}"


def _docstring(member: object) -> str:
    docstring = parse_docstring(inspect.getdoc(member) or "")
    parts = [f"{docstring.text}\n"]
    for title, entries in docstring.sections.items():
        if title in _HEADINGS:
            rows = [(unbroken(name), text) for name, text in entries]
            parts.append(table((_HEADINGS[title], "meaning"), rows))
        else:
            parts.append(f"**{title}:** {' '.join(text for _, text in entries)}\n")
    return "\n".join(parts)
