"""The page of events: each kind of record on a job's log, with its fields."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from elasticdl.shared.messages import events
from elasticdl.shared.proto.fields import cases
from website.markdown import parse_docstring, table, unbroken

_GROUP = re.compile(r"^# --- (?P<title>.+?) -+$", re.MULTILINE)
_INTRODUCTION = (
    "The log of a job holds every fact about it as an event. `elasticdl events JOB` prints the log in words, one line "
    "for each event, and `elasticdl replay JOB` folds it into the state of the job. Each event is in an envelope:\n"
)
_ELSEWHERE = "measurements"
"""Group of the kinds that another module defines."""


def page() -> str:
    """Markdown of the whole page."""
    parts = [
        "# Kinds of events\n",
        _INTRODUCTION,
        _described(events.Envelope),
    ]
    for title, kinds in _groups().items():
        parts.append(f"## {title[:1].upper()}{title[1:]}\n")
        for kind in kinds:
            parts += [f"### {kind.__name__}\n", _described(kind)]
    return "\n".join(parts)


def _groups() -> dict[str, list[type]]:
    """Title -> kinds, both in the order of the source; the comments between the classes are the titles."""
    kinds = {kind.__name__: kind for kind in cases(events.Event)}
    groups: dict[str, list[type]] = {}
    for title, names in _classes(inspect.getsource(events)):
        groups[title] = [kinds.pop(name) for name in names if name in kinds]
    return {title: found for title, found in {**groups, _ELSEWHERE: list(kinds.values())}.items() if found}


def _classes(source: str) -> Iterator[tuple[str, list[str]]]:
    """(title, names of its classes) of each part of a module."""
    _, *parts = _GROUP.split(source)
    for title, part in zip(parts[::2], parts[1::2], strict=True):
        yield title, [node.name for node in ast.parse(part).body if isinstance(node, ast.ClassDef)]


class _Bare(ast.NodeTransformer):
    """Leaves out of a type what only concerns its message."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Subscript(value=ast.Name("Annotated"), slice=ast.Tuple(elts=[hint, _])):
                return hint
        return node


def _described(kind: type) -> str:
    """What a kind of event says, and a table of its fields."""
    docstring = parse_docstring(inspect.getdoc(kind) or "")
    meanings = {
        name: text for names, text in docstring.sections.get("Attributes", ()) for name in re.split(r",\s*", names)
    }
    types = {
        node.target.id: ast.unparse(_Bare().visit(node.annotation))
        for node in ast.walk(ast.parse(inspect.getsource(kind)))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    if not meanings:
        plain = [(unbroken(name), unbroken(hint)) for name, hint in types.items()]
        return f"{docstring.text}\n\n{table(('field', 'type'), plain)}" if plain else f"{docstring.text}\n"
    rows = [(unbroken(name), unbroken(hint), meanings.get(name, "")) for name, hint in types.items()]
    return f"{docstring.text}\n\n{table(('field', 'type', 'meaning'), rows)}"
