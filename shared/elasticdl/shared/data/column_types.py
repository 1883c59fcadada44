"""Column types: decides the type of each column, once for a job, from what the scan of all sources found."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elasticdl.shared.data.schema import Column, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import COLUMN_TYPES
from elasticdl.shared.storage import display

EXACT_MAX = 1 << 53
"""Largest magnitude up to which ``float64`` holds every integer."""
_CSV_TYPES = ("null", "int64", "uint64", "float64", "string")
"""Each can be read as the next, with care for large integers."""
_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_NAMES_SHOWN = 20
_TEXT_SHOWN = 30
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
        missing: number of missing values.
        first_missing: record number of the first of them; -1: none.
        least: least integer, at most 0.
        greatest: greatest integer, at least 0.
        first_inexact: record number of the first integer that ``float64`` can't hold; -1: none.
        leading_zeros: whether a CSV integer begins with a zero, as codes do.
        first_text: record number of the first value that is no number, in a CSV column with more numbers than text;
            -1: none.
        text: that value.
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
        )

    def with_csv(self, later: FoundColumn) -> FoundColumn:
        """The same for an inferred CSV column, of the narrowest type for both."""
        both = self.with_more(later)
        return _csv_column(both, _wider_csv_type(self.type, later.type, both.least, both.greatest))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSource:
    """The columns of one source.

    Attributes:
        uri: names it in errors.
        records: number of records.
        columns: those that are read.
    """

    uri: str
    records: int
    columns: tuple[FoundColumn, ...]


def integer_type(least: int, greatest: int) -> str:
    """The type for integers from ``least`` to ``greatest``; ``string`` where 64 bits are too few."""
    if least >= _INT64_MIN and greatest <= _INT64_MAX:
        return "int64"
    return "uint64" if least >= 0 and greatest <= _UINT64_MAX else "string"


def _wider_csv_type(one: str, other: str, least: int, greatest: int) -> str:
    """The type for the values of both, whose integers are ``least`` to ``greatest``."""
    wider = max(one, other, key=_CSV_TYPES.index)
    return integer_type(least, greatest) if wider in ("int64", "uint64") else wider


def wider_type(one: FoundColumn, other: FoundColumn) -> str | None:
    """The type for the values of both; None if there is none that keeps them."""
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
    """What a CSV column is that would be rounded as floats.

    Args:
        column: as found in the floats.
        texts: the values as they are written.
        present: false where a value is missing.
        first: number of the first of these records.
    """
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
    """A CSV column of strings, with the first value that is no number if most values are numbers.

    Args:
        column: as found.
        values: its values, strings.
        first: number of the first of these records.
    """
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
    """The value that replaces missing ones; None if there is none.

    Raises:
        UserError: it is not of the column's type.
    """
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
    """Refuse types that do not exist and columns that are named twice.

    Raises:
        UserError: names the option and the value.
    """
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
    """The columns to read from a source.

    Args:
        uri: named in errors.
        names: all of its columns.
        options: what the user asks for.

    Raises:
        UserError: the source does not have a column that is asked for.
    """
    for name in (*options.columns, *options.column_types, *options.fill_missing):
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            listed = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
            raise UserError(
                f"{display(uri)} has no column {name!r}",
                hint=f"Did you mean {near[0]!r}?" if near else f"Its columns are {listed}.",
            )
    return options.columns or tuple(names)


def with_the_same_columns(paths: str, sources: Sequence[FoundSource], options: ReaderOptions) -> list[FoundSource]:
    """Sources in which the columns that only others have are missing in every record.

    Args:
        paths: of the data set; named in errors.
        sources: with the columns that appear in them.
        options: what the user asks for.

    Raises:
        UserError: no source has a column that is asked for.
    """
    names = selected(paths, list(dict.fromkeys(each.name for source in sources for each in source.columns)), options)
    aligned = []
    for source in sources:
        known = {each.name: each for each in source.columns}
        columns = [known.get(name) or absent_column(name, 0, source.records) for name in names]
        aligned.append(replace(source, columns=tuple(columns)))
    return aligned


def absent_column(name: str, first: int, records: int) -> FoundColumn:
    """A column that records do not have, the first of which is number ``first``."""
    return FoundColumn(name=name, type="null", missing=records, first_missing=first if records else -1)


def resolve(sources: Sequence[FoundSource], options: ReaderOptions, *, csv: bool, strict: bool) -> tuple[Column, ...]:
    """The columns of a data set, each with a type that holds the values of all sources.

    Args:
        sources: at least one with columns.
        options: given types and values for missing ones.
        csv: the sources are CSV.
        strict: refuse what these types can't hold. False for CSV whose lines the model's ``feed`` parses itself.

    Raises:
        UserError: the sources' types don't go together, an integer would be rounded, or one is missing.
    """
    named = [source for source in sources if source.columns]
    if not named:
        return ()
    columns = []
    for place, first in enumerate(named[0].columns):
        found = [(source, source.columns[place]) for source in named if source.records]
        given = options.column_types.get(first.name)
        kind = given or (_joined_csv(found) if csv else _joined(found))
        if strict and given is None and element_type(kind) == "float64":
            _refuse_rounding(found)
        if kind == "null":
            kind = "string" if csv else "float64"
        columns.append(Column(name=first.name, type=kind, fill=options.fill_missing.get(first.name)))
    for column in columns:
        fill_scalar(column)
    if strict:
        _refuse_missing(named, columns)
    return tuple(columns)


def remarks(sources: Sequence[FoundSource], columns: Sequence[Column]) -> Mapping[str, str]:
    """What to say about a column besides its type: its type in the file, and how missing values are read."""
    texts = {}
    for column in columns:
        found = [each for source in sources for each in source.columns if each.name == column.name]
        parts = sorted({f"was {each.was}" for each in found if each.was})
        if column.type.endswith("int64") and any(each.leading_zeros for each in found):
            parts.append(f"without its leading zeros; keep them with --column_types {column.name}=string")
        is_text = column.type == "string"
        if missing := sum(each.missing for each in found if not is_text or each.type == "string"):
            value = column.fill if column.fill is not None else "NaN" if _is_float(column.type) else '""'
            parts.append(f"{missing:,} missing, filled with {value}")
        if column.type == "string":
            parts += _text_among_numbers(sources, column)
        if parts:
            texts[column.name] = ", ".join(parts)
    return texts


def _text_among_numbers(sources: Sequence[FoundSource], column: Column) -> list[str]:
    for source in sources:
        for each in source.columns:
            if each.name == column.name and each.first_text >= 0:
                text = each.text if len(each.text) <= _TEXT_SHOWN else each.text[:_TEXT_SHOWN] + "..."
                place = f"record {each.first_text:,} (from 0) of {display(source.uri)}"
                return [f"because {place} has {text!r}, where most values are numbers"]
    return []


def _is_float(kind: str) -> bool:
    return element_type(kind).startswith("float")


def _joined_csv(found: Sequence[tuple[FoundSource, FoundColumn]]) -> str:
    kind, least, greatest = "null", 0, 0
    for _, column in found:
        least, greatest = min(least, column.least), max(greatest, column.greatest)
        kind = _wider_csv_type(kind, column.type, least, greatest)
    return kind


def _joined(found: Sequence[tuple[FoundSource, FoundColumn]]) -> str:
    joined = FoundColumn(name="", type="null")
    for source, column in found:
        wider = wider_type(joined, column)
        if wider is None:
            raise UserError(
                f"column {column.name!r} is {column.type} in {display(source.uri)} and {joined.type} in the files "
                "before it",
                hint=f"Write all files with one schema, or give a type: --column_types {column.name}=TYPE",
            )
        joined = replace(joined.with_more(column), type=wider)
    return joined.type


def _wider(one: str, other: str) -> str | None:
    """The type for the values of both; None if there is none that keeps them."""
    if one == other or "null" in (one, other):
        return other if one == "null" else one
    if element_type(one) != one or element_type(other) != other or {one, other} & {"string", "binary"}:
        return None
    wider = np.result_type(one, other)
    are_integers = all(np.dtype(kind).kind in "iu" for kind in (one, other))
    return None if are_integers and wider.kind == "f" else wider.name


def _refuse_rounding(found: Sequence[tuple[FoundSource, FoundColumn]]) -> None:
    for source, column in found:
        if column.first_inexact >= 0:
            raise UserError(
                f"column {column.name!r} has fractions and integers beyond 2^53, which float64 would round; the "
                f"first is in {display(source.uri)}, record {column.first_inexact} (from 0)",
                hint=f"Give its type: --column_types {column.name}=string, or {column.name}=float64 to round.",
            )


def _refuse_missing(sources: Sequence[FoundSource], columns: Sequence[Column]) -> None:
    wrong, exact = [], True
    for place, column in enumerate(columns):
        if column.fill is not None or not needs_fill(column.type):
            continue
        found = [(source, source.columns[place]) for source in sources if source.columns[place].missing]
        if found:
            source, first = found[0]
            number = sum(each.missing for _, each in found)
            where = f"record {first.first_missing} of {display(source.uri)}"
            wrong.append((column, f"{column.name!r} ({number:,} of type {column.type}, the first in {where})"))
            exact = exact and all(each.first_inexact < 0 for each in (s.columns[place] for s in sources))
    if not wrong:
        return
    unused = {"i": "-1", "u": "0", "b": "false"}
    fills = ",".join(f"{column.name}={unused[np.dtype(element_type(column.type)).kind]}" for column, _ in wrong)
    floats = ",".join(f"{column.name}=float64" for column, _ in wrong)
    nan = f" Or read the columns as floats, with NaN: --column_types {floats}" if exact else ""
    raise UserError(
        f"values are missing in {', '.join(text for _, text in wrong)}. Records are counted from 0.",
        hint=f"Give a value for them: --fill_missing {fills} (a value that the data does not contain marks them).{nan}",
    )
