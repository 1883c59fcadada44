"""What commands that inspect something print: tables for people, plain rows for programs, and JSON.

A table on a terminal has boxes. In a pipe or a file it is a line of names and one line for each row, with tabs between
the values, as ``cut`` reads them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from rich.console import Console
from rich.table import Table


def print_table(
    console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", whole: str = ""
) -> None:
    """Print rows; ``whole``: the column whose values are not wrapped, because users copy them."""
    if not console.is_terminal:
        for row in (columns, *rows):
            console.file.write("\t".join(" ".join(value.split()) for value in row) + "\n")  # rich expands tabs.
        return
    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == whole)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_json(console: Console, value: Any, *, one_line: bool = False) -> None:
    """Print one JSON value: dataclasses as objects with their type, enumerations as their values."""
    console.print(json.dumps(plain(value), indent=None if one_line else 2, allow_nan=False), soft_wrap=True)


def plain(value: Any) -> Any:
    """A value as JSON has it. A number that is not finite becomes null, because JSON has none."""
    match value:
        case None | bool() | int():
            return value
        case Enum():
            return plain(value.value)
        case str():
            return str(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case bytes():
            return value.hex()
        case Mapping():
            return {str(plain(key)): plain(each) for key, each in value.items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
            return {"type": type(value).__name__, **fields}
        case Iterable():
            return [plain(each) for each in value]
        case _:
            return str(value)
