"""Markdown: docstrings as Markdown, tables, and the list indentation that Python-Markdown needs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Input shape|Output shape):$")
_ITEM = re.compile(r"^ {4}(\w[\w, ]*): (.*)$")
_BULLET = re.compile(r"^(?P<indent> *)(?P<marker>- |\d+\. )")
_FLAG = re.compile(r"<code>(?P<flag>--[^<\s]{1,36})</code>")
_LIST_INDENT = 4
"""Columns by which Python-Markdown wants the blocks of a list item to be indented."""


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring in Google's style.

    Attributes:
        text: everything before the first section, as Markdown.
        sections: title -> its entries as (name, text); an entry without a name has an empty one.
    """

    text: str
    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)


def parse_docstring(docstring: str) -> Docstring:
    """Split a docstring, indented or not, into text and sections."""
    lines = inspect.cleandoc(docstring).replace("``", "`").splitlines()
    text: list[str] = []
    sections: dict[str, list[tuple[str, str]]] = {}
    section: list[tuple[str, str]] | None = None
    for line in lines:
        if title := _SECTION.match(line):
            section = sections[title[1]] = []
        elif section is None or (line and not line.startswith(" ")):
            section = None
            text.append(line)
        elif item := _ITEM.match(line):
            section.append((item[1], item[2]))
        elif line.strip() and section:
            name, former = section[-1]
            section[-1] = name, f"{former} {line.strip()}"
        elif line.strip():
            section.append(("", line.strip()))
    return Docstring("\n".join(text).strip(), sections)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells may contain Markdown, line breaks in them become spaces."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def unbroken(text: str) -> str:
    """The name of a flag, a field or a variable, as code that is not broken into lines."""
    return f"`{text}`{{ .name }}"


def keep_flags_whole(html: str) -> str:
    """Mark code that is a flag, as ``unbroken`` does; long ones may be broken."""
    return _FLAG.sub(r'<code class="name">\g<flag></code>', html)


def _cell(text: str) -> str:
    """Within code Python-Markdown reads a bar as it is."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if index % 2 else part.replace("|", "\\|") for index, part in enumerate(parts))


def indent_lists(text: str) -> str:
    """Indent what belongs to a list item by four columns for each level, as Python-Markdown needs it.

    The documents are written for GitHub, where the width of the marker is enough: three columns after ``1. ``. Lines of
    fenced blocks at the left margin stay as they are.
    """
    return "\n".join(_indented(text.splitlines())) + "\n"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    levels: list[int] = []
    """Columns at which the content of each open list item starts."""
    is_fenced = False
    for line in lines:
        if line.startswith("```"):
            is_fenced = not is_fenced
        indent = len(line) - len(line.lstrip(" "))
        if is_fenced or not line.strip():
            yield line
            continue
        while levels and indent < levels[-1]:
            levels.pop()
        yield line if not levels else " " * (_LIST_INDENT * len(levels) + indent - levels[-1]) + line.lstrip(" ")
        if (bullet := _BULLET.match(line)) and indent < (levels[-1] if levels else 0) + _LIST_INDENT:
            levels.append(indent + len(bullet["marker"]))
