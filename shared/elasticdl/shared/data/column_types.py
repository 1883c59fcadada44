"""Column types, and what a scan finds out about the columns of a source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elasticdl.shared.data.schema import Column, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import COLUMN_TYPES
from elasticdl.shared.storage import display
from elasticdl.shared.words import did_you_mean, some_of

EXACT_MAX = 1 << 53
"""Largest magnitude up to which ``float64`` holds every integer."""
_CSV_TYPES = ("null", "int64", "uint64", "float64", "string")
"""Each can be read as the next, with care for large integers."""
_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_NAMES_SHOWN = 20
_NUMBER = r"^\s*([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)\s*$"
_SAMPLE = 100
"""Values of a block that show whether it is worth a closer look."""
_BINARY = {"string": pa.large_string(), "binary": pa.large_binary()}
_INT64_MIN, _INT64_MAX, _UINT64_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundColumn:
    """What a scan found out about one column of one source.

    Attributes:
        name: unique in the source.
        type: as in ``Column``, or ``null`` if the column has no value.
        was: the type in the file, in words, where it is another one; else empty.
        first_missing: record number of the first of them; -1: none.
        least: least integer, at most 0.
        greatest: greatest integer, at least 0.
        first_inexact: record number of the first integer that ``float64`` can't hold; -1: none.
        leading_zeros: whether a CSV integer begins with a zero, as codes do.
        first_text: record number of the first value that is no number, in a CSV column with more numbers than text;
            -1: none.
        read_as: the first CSV number that is read as another one than people may expect, in words; else empty.
    """

    name: str
    type: str
    was: str = ""
    missing: int = 0
    first_missing: int = -1
    least: int = 0
    greatest: int = 0
    first_inexact: int = -1
    leading_zeros: bool = False
    first_text: int = -1
    text: str = ""
    read_as: str = ""

    def with_more(self, later: FoundColumn) -> FoundColumn:
        """This and what later records of the column hold; of this type."""
        return replace(
            self,
            missing=self.missing + later.missing,
            first_missing=self.first_missing if self.first_missing >= 0 else later.first_missing,
            least=min(self.least, later.least),
            greatest=max(self.greatest, later.greatest),
            first_inexact=self.first_inexact if self.first_inexact >= 0 else later.first_inexact,
            leading_zeros=self.leading_zeros or later.leading_zeros,
            first_text=self.first_text if self.first_text >= 0 else later.first_text,
            text=self.text if self.first_text >= 0 else later.text,
            read_as=self.read_as or later.read_as,
        )

    def with_csv(self, later: FoundColumn) -> FoundColumn:
        """The same for an inferred CSV column, of the narrowest type for both."""
        both = self.with_more(later)
        return _csv_column(both, wider_csv_type(self.type, later.type, both.least, both.greatest))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSource:
    """The columns of one source."""

    uri: str
    records: int
    columns: tuple[FoundColumn, ...]


def integer_type(least: int, greatest: int) -> str:
    """The type for integers from ``least`` to ``greatest``; ``string`` where 64 bits are too few."""
    if least >= _INT64_MIN and greatest <= _INT64_MAX:
        return "int64"
    return "uint64" if least >= 0 and greatest <= _UINT64_MAX else "string"


def wider_csv_type(one: str, other: str, least: int, greatest: int) -> str:
    """The type for the values of both, whose integers are ``least`` to ``greatest``."""
    wider = max(one, other, key=_CSV_TYPES.index)
    return integer_type(least, greatest) if wider in ("int64", "uint64") else wider


def wider_type(one: FoundColumn, other: FoundColumn) -> str | None:
    """The type for the values of both; None if no type keeps them."""
    kinds = (one.type, other.type)
    if set(kinds) == {"int64", "uint64"}:
        kind = integer_type(min(one.least, other.least), max(one.greatest, other.greatest))
        return None if kind == "string" else kind
    if all(kind.startswith("list<") for kind in kinds):
        element = _wider(*map(element_type, kinds))
        return None if element is None else f"list<{element}>"
    return _wider(*kinds)


def _csv_column(column: FoundColumn, kind: str) -> FoundColumn:
    """A CSV column with its final type: text misses nothing."""
    if kind != "string":
        return replace(column, type=kind)
    return replace(column, type=kind, missing=0, first_missing=-1)


def exact_integers(column: FoundColumn, texts: pa.ChunkedArray, present: pa.ChunkedArray, first: int) -> FoundColumn:
    """What a CSV column is that would be rounded as floats; ``present``: false where a value is missing."""
    cells = [
        text.strip() if is_present else ""
        for text, is_present in zip(texts.to_pylist(), present.to_pylist(), strict=True)
    ]
    whole = {place: int(cell.partition(".")[0]) for place, cell in enumerate(cells) if _WHOLE.fullmatch(cell)}
    inexact = next((place for place, value in whole.items() if float(value) != value), -1)
    integers = {place: value for place, value in whole.items() if "." not in cells[place]}
    least, greatest = min((0, *integers.values())), max((0, *integers.values()))
    column = replace(column, least=least, greatest=greatest, first_inexact=first + inexact if inexact >= 0 else -1)
    all_integers = len(integers) == sum(map(bool, cells))
    return _csv_column(column, integer_type(least, greatest)) if all_integers else column


def with_text_among_numbers(column: FoundColumn, values: pa.ChunkedArray, first: int) -> FoundColumn:
    """A CSV column of strings, with the first value that is no number if most values are numbers."""
    if not _are_mostly_numbers(values[:_SAMPLE]):
        return column
    is_text = pc.and_(pc.invert(pc.match_substring_regex(values, _NUMBER)), pc.greater(pc.utf8_length(values), 0))
    place = pc.index(is_text, True).as_py()
    if place < 0 or not _are_mostly_numbers(values):
        return column
    return replace(column, first_text=first + place, text=values[place].as_py())


def _are_mostly_numbers(values: pa.ChunkedArray) -> bool:
    present = pc.sum(pc.greater(pc.utf8_length(values), 0)).as_py() or 0
    numbers = pc.sum(pc.match_substring_regex(values, _NUMBER)).as_py() or 0
    return 2 * numbers > present


def element_type(kind: str) -> str:
    """``int64`` for ``int64``, ``list<int64>`` and ``int64[8]``."""
    return kind.removeprefix("list<").removesuffix(">").partition("[")[0]


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a column's type."""
    element = element_type(kind)
    flat = _BINARY.get(element) or pa.from_numpy_dtype(np.dtype(element))
    if kind.startswith("list<"):
        return pa.large_list(flat)
    return pa.list_(flat, int(kind.partition("[")[2].rstrip("]"))) if kind.endswith("]") else flat


def needs_fill(kind: str) -> bool:
    """Whether a missing value has no representation in a type."""
    return element_type(kind) not in _BINARY and np.dtype(element_type(kind)).kind in "iub"


def fill_scalar(column: Column) -> pa.Scalar | None:
    """The value that replaces missing ones; None if absent."""
    kind = element_type(column.type)
    if column.fill is None:
        text = {"string": "", "binary": ""}.get(kind)
        return None if text is None else pa.scalar(text).cast(arrow_type(kind))
    try:
        return pa.scalar(column.fill).cast(arrow_type(kind))
    except pa.ArrowInvalid as error:
        raise UserError(
            f"--fill_missing {column.name}={column.fill}: the column is {column.type}",
            hint=f"Give a value that {kind} can hold.",
            usage=True,
        ) from error


def check_options(options: ReaderOptions) -> None:
    """Refuse types that do not exist and columns that are named twice."""
    for name, kind in options.column_types.items():
        if element_type(kind) not in (*COLUMN_TYPES, "bool", "binary", "float16"):
            raise UserError(
                f"--column_types {name}={kind}: there is no such type",
                hint=f"Types are {', '.join(COLUMN_TYPES)}.",
                usage=True,
            )
    twice = [name for name in options.columns if options.columns.count(name) > 1]
    if twice:
        raise UserError(f"--columns names {twice[0]!r} twice", usage=True)


def selected(uri: str, names: Sequence[str], options: ReaderOptions) -> tuple[str, ...]:
    """The columns to read from a source."""
    for name in (*options.columns, *options.column_types, *options.fill_missing):
        if name not in names:
            hint = did_you_mean(name, names, f"Its columns are {some_of(names, _NAMES_SHOWN)}.")
            raise UserError(f"{display(uri)} has no column {name!r}", hint=hint)
    return options.columns or tuple(names)


def absent_column(name: str, first: int, records: int) -> FoundColumn:
    """A column that records do not have, the first of which is number ``first``."""
    return FoundColumn(name=name, type="null", missing=records, first_missing=first if records else -1)


def _wider(one: str, other: str) -> str | None:
    """The type for the values of both; None if no type keeps them."""
    if one == other or "null" in (one, other):
        return other if one == "null" else one
    if element_type(one) != one or element_type(other) != other or {one, other} & {"string", "binary"}:
        return None
    wider = np.result_type(one, other)
    are_integers = all(np.dtype(kind).kind in "iu" for kind in (one, other))
    return None if are_integers and wider.kind == "f" else wider.name
