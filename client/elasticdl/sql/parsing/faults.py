"""Shows the errors of a statement: message, line, a caret under the token, and what to write instead."""

from __future__ import annotations

import unicodedata

from elasticdl.sql.parsing.tokens import Text
from elasticdl.sql.statements import Fault, StatementError

SHOWN_MAX = 20
"""Errors of one statement that are shown; more rarely help."""
_LINE_CHARS_MAX = 160
_TAB = "    "


def render(error: StatementError, script: str) -> str:
    """Every error with its line of the script and a caret under the place."""
    text = Text(script)
    shown = [_render(fault, text) for fault in error.faults[:SHOWN_MAX]]
    if (more := len(error.faults) - SHOWN_MAX) > 0:
        shown.append(f"and {more} more errors")
    return "\n".join(shown)


def _render(fault: Fault, text: Text) -> str:
    at = fault.position
    where = f"line {at.line}, column {at.column}: {fault.message}"
    if at.offset > len(text.text):
        return " ".join(filter(None, (where, fault.hint)))
    line = text.line(at.line)
    first = max(0, min(at.column - 1 - _LINE_CHARS_MAX // 2, len(line) - _LINE_CHARS_MAX))
    line, column = line[first : first + _LINE_CHARS_MAX], at.column - 1 - first
    before = _shown(line[:column])
    under = _shown(line[column : column + fault.length])
    number = f"{at.line} | "
    caret = " " * (len(number) + _width(before)) + "^" * max(1, _width(under))
    return "\n".join([where, f"{number}{_shown(line)}", f"{caret} {fault.hint}".rstrip()])


def _shown(text: str) -> str:
    """A part of a line as it is printed: without characters that a terminal would act on."""
    text = text.replace("\t", _TAB)
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _width(text: str) -> int:
    """Columns that a terminal gives a text."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )
