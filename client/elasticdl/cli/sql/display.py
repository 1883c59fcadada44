"""Shows what statements do, and their results: tables for people, rows for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from elasticdl.cli.display.consoles import error_console, plain_console, wrapped
from elasticdl.cli.display.output import print_table
from elasticdl.sql.results import Result, Table

ROWS_SHOWN = 40
"""Rows of a result that are shown on a terminal."""
_CELL_CHARS_MAX = 200


class ConsoleDisplay:
    """See ``elasticdl.sql.results.Display``.

    Args:
        console: where lines and tables go.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, text: str) -> None:
        """See ``Display``."""
        self._console.print(wrapped(text, self._console), soft_wrap=True)

    def table(self, title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """See ``Display``."""
        if not self._console.is_terminal:
            self.line(f"{title}:")
        print_table(self._console, names, rows, title=title)


def display_of(*, as_json: bool) -> ConsoleDisplay:
    """Where statements tell what they do: standard output, or standard error if that gets JSON."""
    return ConsoleDisplay(error_console() if as_json else plain_console())


def show_result(result: Result, console: Console) -> None:
    """Print the result of a statement, apart from what it has told already."""
    if result.kind == "show models" and result.table and not result.table.rows:
        console.print("No model is registered yet.")
    elif result.table:
        _show_table(result.table, console)
    if result.text:
        console.print(result.text.rstrip(), soft_wrap=True)


def _show_table(table: Table, console: Console) -> None:
    is_terminal = console.is_terminal
    rows = table.rows[:ROWS_SHOWN] if is_terminal else table.rows
    print_table(console, table.names, [[_cell(value, is_terminal) for value in row] for row in rows])
    if len(rows) < len(table.rows) or table.is_cut:
        more = "more than " if table.is_cut else ""
        console.print(f"{len(rows)} of {more}{len(table.rows):,} rows", soft_wrap=True)


def _cell(value: Any, is_terminal: bool) -> str:
    if value is None:
        return "NULL" if is_terminal else ""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    text = str(value)
    return text if not is_terminal or len(text) <= _CELL_CHARS_MAX else f"{text[:_CELL_CHARS_MAX]}…"


def as_json(result: Result) -> dict[str, Any]:
    """A result as ``--json`` prints it."""
    facts: dict[str, Any] = {"statement": result.statement, "kind": result.kind}
    for name in ("model", "job", "into", "text"):
        if value := getattr(result, name):
            facts[name] = value
    if result.rows is not None:
        facts["row_count"] = result.rows
    if result.metrics:
        facts["metrics"] = dict(result.metrics)
    if result.columns:
        facts["columns"] = [dict(zip(("name", "use", "reason"), each, strict=True)) for each in result.columns]
    elif result.table and not result.metrics:
        facts["rows"] = [dict(zip(result.table.names, row, strict=True)) for row in result.table.rows]
        facts["is_cut"] = result.table.is_cut
    return facts
