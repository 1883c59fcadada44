"""What the tables whose rows are admitted by count or expire hold: as rows and as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypedDict

from elasticdl.master.core import State
from elasticdl.shared.quantities import count


class TableRow(TypedDict):
    """The figures of a table, summed over all ps, when they were counted last."""

    rows: int
    candidates: int
    admitted: int
    expired: int
    dropped_gradients: int


def table_rows(state: State) -> dict[str, TableRow]:
    """Table -> its figures, for tables that every ps with a part of the model has counted."""
    return {name: row for name in sorted(state.tables) if (row := _row(state, name))}


def _row(state: State, name: str) -> TableRow | None:
    counted = [state.tables[name].get(ps) for ps in state.holders]
    found = [each for each in counted if each is not None]
    if len(found) < len(counted):
        return None
    rows, admitted = sum(each.rows for each in found), sum(each.admitted for each in found)
    return TableRow(
        rows=rows,
        candidates=sum(each.candidates for each in found),
        admitted=admitted,
        expired=admitted - rows,
        dropped_gradients=sum(each.dropped for each in found),
    )


def table_texts(tables: Mapping[str, TableRow]) -> Iterator[tuple[str, str]]:
    """Name and text of the figures of each table."""
    for name, row in tables.items():
        admitted = f"{count(row['rows'], 'row')} of {row['admitted']:,} admitted, {row['expired']:,} expired"
        dropped = count(row["dropped_gradients"], "gradient was", "gradients were")
        yield f"table {name}", f"{admitted}; {count(row['candidates'], 'candidate')}, {dropped} dropped"
