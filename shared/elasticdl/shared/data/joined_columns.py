"""Decides the type of each column, once for a job, from what the scans of all sources found, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from elasticdl.shared.data.column_types import (
    FoundColumn,
    FoundSource,
    absent_column,
    element_type,
    fill_scalar,
    needs_fill,
    selected,
    wider_csv_type,
    wider_type,
)
from elasticdl.shared.data.schema import Column, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import display

_TEXT_SHOWN = 30


class ColumnError(UserError):
    """Columns whose types can't hold the values of all sources."""

    def __init__(self, message: str, *, columns: Sequence[str], hint: str, have_one_type: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.columns = tuple(columns)
        self.have_one_type = have_one_type


def refuse(error: ColumnError) -> None:
    """Raise it."""
    raise error


@dataclass(slots=True)
class _JoinedColumn:
    """What was found in one column of all sources so far.

    Attributes:
        conflict: why they have no type together; empty: they have.
        uris: of the sources in which ``all`` has its first missing value, inexact integer and text.
        was: see ``FoundColumn``, of all sources.
    """

    all: FoundColumn
    conflict: str = ""
    text_missing: int = 0
    uris: dict[str, str] = field(default_factory=dict)
    was: set[str] = field(default_factory=set)

    def take(self, source: FoundSource, column: FoundColumn, *, csv: bool, given: str | None) -> None:
        """Add the same column of the next source; ``given``: the type that the user gives the column, if any."""
        if self._changes_nothing(column):
            return
        if column.was:
            self.was.add(column.was)
        if column.type == "string":
            self.text_missing += column.missing
        for place in ("first_missing", "first_inexact", "first_text"):
            if getattr(column, place) >= 0:
                self.uris.setdefault(place, source.uri)
        joined, kind = self.all.with_more(column), self.all.type
        if given:
            kind = given
        elif source.records and csv:
            kind = wider_csv_type(kind, column.type, joined.least, joined.greatest)
        elif source.records:
            kind = self._wider(source, column)
        self.all = replace(joined, type=kind)

    def _changes_nothing(self, column: FoundColumn) -> bool:
        """Whether a column of most files changes nothing: joining takes ten times as long as this."""
        known = self.all
        return (
            column.type == known.type
            and column.least >= known.least
            and column.greatest <= known.greatest
            and not (column.missing or column.was or column.leading_zeros or column.read_as)
            and column.first_inexact < 0
            and column.first_text < 0
        )

    def _wider(self, source: FoundSource, column: FoundColumn) -> str:
        wider = wider_type(self.all, column)
        if wider is None and not self.conflict:
            self.conflict = (
                f"column {column.name!r} is {column.type} in {display(source.uri)} and {self.all.type} in the files "
                "before it"
            )
        return wider or self.all.type


class JoinedColumns:
    """The columns of a data set. Takes the memory of one source, however many there are.

    Args:
        may_lack: sources need not have all columns; a column that a source does not have is missing in its records.
    """

    def __init__(self, options: ReaderOptions, *, csv: bool, may_lack: bool) -> None:
        self._options = options
        self._csv = csv
        self._may_lack = may_lack
        self._columns: dict[str, _JoinedColumn] = {}
        self._records = 0
        self._first_uri = ""

    @property
    def records(self) -> int:
        """Of all sources so far."""
        return self._records

    def take(self, source: FoundSource) -> None:
        """Add what was found in the next source."""
        for column in source.columns:
            if column.name not in self._columns:
                self._columns[column.name] = self._new(column.name)
            self._take(source, column)
        if self._may_lack and len(source.columns) < len(self._columns):
            lacking = self._columns.keys() - {column.name for column in source.columns}
            for name in lacking:
                self._take(source, absent_column(name, 0, source.records))
        self._first_uri = self._first_uri or (source.uri if source.records else "")
        self._records += source.records

    def _take(self, source: FoundSource, column: FoundColumn) -> None:
        given = self._options.column_types.get(column.name)
        self._columns[column.name].take(source, column, csv=self._csv, given=given)

    def _new(self, name: str) -> _JoinedColumn:
        """A column that no source before has."""
        if not self._may_lack:
            return _JoinedColumn(FoundColumn(name=name, type="null"))
        uris = {"first_missing": self._first_uri} if self._records else {}
        return _JoinedColumn(absent_column(name, 0, self._records), uris=uris)

    def resolve(
        self, paths: str, *, strict: bool, report: Callable[[ColumnError], None] = refuse
    ) -> tuple[Column, ...]:
        """The columns of the data set, each with a type that holds the values of all sources.

        Args:
            strict: refuse what these types can't hold. False for CSV whose lines the model's ``feed`` parses itself.

        Raises:
            UserError: no source has a column that is asked for, or a given value is of another type than its column.
        """
        options = self._options
        names = selected(paths, list(self._columns), options) if self._may_lack else tuple(self._columns)
        columns = []
        for name in names:
            given = options.column_types.get(name)
            found = self._columns[name]
            if found.conflict and not given:
                hint = f"Write all files with one schema, or give a type: --column_types {name}=TYPE"
                report(ColumnError(found.conflict, columns=[name], hint=hint, have_one_type=False))
            kind = given or found.all.type
            if strict and given is None and element_type(kind) == "float64":
                _find_rounding(found, report)
            if kind == "null":
                kind = "string" if self._csv else "float64"
            columns.append(Column(name=name, type=kind, fill=options.fill_missing.get(name)))
        for column in columns:
            fill_scalar(column)
        if strict:
            self._find_missing(columns, report)
        return tuple(columns)

    def remarks(self, columns: Sequence[Column]) -> Mapping[str, str]:
        """What to say about a column besides its type: its type in the file, and how missing values are read."""
        texts = {}
        for column in columns:
            found = self._columns[column.name]
            parts = sorted(f"was {each}" for each in found.was)
            if column.type.endswith("int64") and found.all.leading_zeros:
                parts.append(f"without its leading zeros; keep them with --column_types {column.name}=string")
            is_text = column.type == "string"
            if missing := found.text_missing if is_text else found.all.missing:
                value = column.fill if column.fill is not None else "NaN" if _is_float(column.type) else '""'
                is_filled = column.fill is not None or not needs_fill(column.type)
                parts.append(f"{missing:,} missing{f', filled with {value}' if is_filled else ''}")
            if is_text and found.all.first_text >= 0:
                text = found.all.text if len(found.all.text) <= _TEXT_SHOWN else found.all.text[:_TEXT_SHOWN] + "..."
                place = f"record {found.all.first_text:,} (from 0) of {display(found.uris['first_text'])}"
                parts.append(f"because {place} has {text!r}, where most values are numbers")
            if found.all.read_as and not is_text:
                parts.append(found.all.read_as)
            if parts:
                texts[column.name] = ", ".join(parts)
        return texts

    def _find_missing(self, columns: Sequence[Column], report: Callable[[ColumnError], None]) -> None:
        wrong, exact = [], True
        for column in columns:
            if column.fill is not None or not needs_fill(column.type):
                continue
            found = self._columns[column.name]
            if found.all.missing:
                where = f"record {found.all.first_missing} of {display(found.uris['first_missing'])}"
                number = f"{found.all.missing:,} of type {column.type}"
                wrong.append((column, f"{column.name!r} ({number}, the first in {where})"))
                exact = exact and found.all.first_inexact < 0
        if not wrong:
            return
        unused = {"i": "-1", "u": "0", "b": "false"}
        fills = ",".join(f"{column.name}={unused[np.dtype(element_type(column.type)).kind]}" for column, _ in wrong)
        # Lists take another type in JSON lines alone.
        floats = ",".join(
            f"{column.name}={column.type.replace(element_type(column.type), 'float64', 1)}"
            for column, _ in wrong
            if self._may_lack or element_type(column.type) == column.type
        )
        nan = f" Or read the columns as floats, with NaN: --column_types {floats}" if exact and floats else ""
        has_numbers = any(element_type(column.type) != "bool" for column, _ in wrong)
        marks = " (a value that the data does not contain marks them)" if has_numbers else ""
        report(
            ColumnError(
                f"values are missing in {', '.join(text for _, text in wrong)}. Records are counted from 0.",
                hint=f"Give a value for them: --fill_missing {fills}{marks}.{nan}",
                columns=[column.name for column, _ in wrong],
            )
        )


def _is_float(kind: str) -> bool:
    return element_type(kind).startswith("float")


def _find_rounding(found: _JoinedColumn, report: Callable[[ColumnError], None]) -> None:
    if found.all.first_inexact >= 0:
        name = found.all.name
        report(
            ColumnError(
                f"column {name!r} has fractions, NaN or infinity, and integers beyond 2^53, which float64 would round; "
                f"the first is in {display(found.uris['first_inexact'])}, record {found.all.first_inexact} (from 0)",
                hint=f"Give its type: --column_types {name}=string, or {name}=float64 to round.",
                columns=[name],
            )
        )
