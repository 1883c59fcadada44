"""What is known of the columns of a snapshot, over all of its rows: their kinds and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from elasticdl.sql.databases.port import quoted
from elasticdl.sql.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

Source = Literal[
    "boolean", "integer", "number", "decimal", "text", "date", "timestamp", "time", "numbers", "texts", "null", "other"
]
_COLUMNS_AT_ONCE = 200
"""Aggregates of more columns need too much memory in one query."""
_EXACT_AT_ONCE = 20
EXACT_MAX = 1_000
"""If there are about as many different values or fewer, they are counted exactly."""
_UNIQUE_SHARE = 0.75
"""If the estimated number of different values is a smaller share of the rows, not all of them differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One column over all rows.

    Attributes:
        source: kind of its type.
        shown_type: the type, for people.
        values: rows that have a value: neither NULL nor NaN.
        distinct: different values, exact up to ``EXACT_MAX``, else within some percent.
        low, high: of numbers; of lists: least and greatest length.
        numeric: whether all texts are numbers without leading zeros.
        dated: ``date`` or ``timestamp`` if all texts are one in ISO 8601; else empty.
    """

    name: str
    source: Source
    shown_type: str
    rows: int
    values: int
    distinct: int
    low: float = 0.0
    high: float = 0.0
    numeric: bool = False
    dated: str = ""

    @property
    def unique(self) -> bool:
        """Whether all values differ."""
        return self.values > 0 and self.distinct == self.values

    @property
    def nulls(self) -> int:
        """Rows without a value."""
        return self.rows - self.values


def source_of(kind: pa.DataType) -> Source:
    """The kind of an Arrow type."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return source_of(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = source_of(kind.value_type)
        return {"integer": "numbers", "number": "numbers", "decimal": "numbers", "text": "texts"}.get(inner, "other")  # type: ignore[return-value]
    tests: tuple[tuple[bool, Source], ...] = (
        (types.is_null(kind), "null"),
        (types.is_boolean(kind), "boolean"),
        (types.is_integer(kind), "integer"),
        (types.is_floating(kind), "number"),
        (types.is_decimal(kind), "decimal"),
        (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind), "text"),
        (types.is_date(kind), "date"),
        (types.is_timestamp(kind), "timestamp"),
        (types.is_time(kind), "time"),
    )
    return next((source for is_it, source in tests if is_it), "other")


def present(name: str, source: Source) -> str:
    """An expression: the column's value, NULL also where it is NaN, or no finite number."""
    column = quoted(name)
    return f"CASE WHEN isfinite({column}) THEN {column} END" if source == "number" else column


def profiles(snapshot: Snapshot, exact: str = "") -> dict[str, Profile]:
    """Those of all columns, by name.

    Args:
        exact: the label, whose different values are counted exactly however many they are: they may be classes.
    """
    fields = [(field.name, source_of(field.type), str(field.type)) for field in snapshot.schema]
    found: dict[str, Profile] = {}
    for start in range(0, len(fields), _COLUMNS_AT_ONCE):
        found |= {one.name: one for one in _profiles(snapshot, fields[start : start + _COLUMNS_AT_ONCE])}
    countable = [one for one in found.values() if one.source not in ("null", "other") and one.values]
    counted = [one.name for one in countable if one.name == exact or _is_counted(one)]
    for start in range(0, len(counted), _EXACT_AT_ONCE):
        names = counted[start : start + _EXACT_AT_ONCE]
        row = snapshot.query([f"count(DISTINCT {present(name, found[name].source)})" for name in names])
        for name, column in zip(names, row.columns, strict=True):
            found[name] = replace(found[name], distinct=column[0].as_py())
    return found


def _is_counted(one: Profile) -> bool:
    """Whether the number of different values has to be exact."""
    may_be_id = one.source in ("integer", "text") and one.distinct >= _UNIQUE_SHARE * one.values
    return one.distinct <= EXACT_MAX or may_be_id


def _profiles(snapshot: Snapshot, fields: Sequence[tuple[str, Source, str]]) -> Iterator[Profile]:
    selected = [expression for name, source, _ in fields for expression in _aggregates(name, source)]
    row = [column[0].as_py() for column in snapshot.query(selected).columns]
    for place, (name, source, shown) in enumerate(fields):
        values, distinct, low, high, numeric, dates, stamps = row[place * 7 : place * 7 + 7]
        dated = "date" if values and dates == values else "timestamp" if values and stamps == values else ""
        yield Profile(
            name=name,
            source=source,
            shown_type=shown,
            rows=snapshot.rows,
            values=values,
            distinct=min(distinct, values),
            low=float(low or 0),
            high=float(high or 0),
            numeric=bool(values) and numeric == values,
            dated=dated,
        )


def _aggregates(name: str, source: Source) -> list[str]:
    """Seven expressions: values, different ones, least, greatest; of texts: numbers, dates, timestamps."""
    value = present(name, source)
    counted = [f"count({value})", f"approx_count_distinct({value})"]
    if source in ("null", "other"):
        return [f"count({quoted(name)})", "0", "0", "0", "0", "0", "0"]
    if source in ("integer", "number", "decimal"):
        return [*counted, f"min({value})::DOUBLE", f"max({value})::DOUBLE", "0", "0", "0"]
    if source in ("numbers", "texts"):
        return [*counted, f"min(len({value}))", f"max(len({value}))", "0", "0", "0"]
    if source == "text":
        leading_zero = f"regexp_matches({value}, '^[+-]?0[0-9]')"
        numeric = f"count(*) FILTER (isfinite(TRY_CAST({value} AS DOUBLE)) AND NOT {leading_zero})"
        iso = r"'^\d{4}-\d{2}-\d{2}"
        dates = rf"count(*) FILTER (regexp_full_match({value}, {iso}') AND TRY_CAST({value} AS DATE) IS NOT NULL)"
        stamps = (
            rf"count(*) FILTER (regexp_matches({value}, {iso}([ T]\d{{2}}:\d{{2}}.*)?$') "
            f"AND TRY_CAST({value} AS TIMESTAMP) IS NOT NULL)"
        )
        return [*counted, "0", "0", numeric, dates, stamps]
    return [*counted, "0", "0", "0", "0", "0"]
