"""Arrow columns: their types, their values as numpy arrays, and hashes of their cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elasticdl.shared.data.column_types import EXACT_MAX, FoundColumn, arrow_type, element_type, fill_scalar
from elasticdl.shared.data.hashing import Hashes, content_hashes, fold, mix64_array
from elasticdl.shared.data.ragged import Columns, Ragged
from elasticdl.shared.data.schema import Column

_MISSING = np.uint64(0x6D69_7373_696E_6721)
_VIEWS = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def natural_type(kind: pa.DataType) -> tuple[str, str]:
    """The type of a column that is not given one, and the type in the file in words where that is another one.

    Returns:
        An empty type if the column can't be read without a given one.
    """
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    kind = _VIEWS.get(str(kind), kind)
    if _is_list(kind):
        if _is_list(kind.value_type):  # They may be nested too deeply to be followed.
            return "", ""
        element, was = natural_type(kind.value_type)
        if not element or element_type(element) != element:
            return "", ""
        element = "float64" if element == "null" else element
        size = f"{element}[{kind.list_size}]" if pa.types.is_fixed_size_list(kind) else f"list<{element}>"
        return size, was
    if _is_bytes(kind):
        return ("string" if _is_text(kind) else "binary"), ""
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        text = str(kind).partition("[")[0] if pa.types.is_date(kind) else str(kind)
        unit = "days" if pa.types.is_date32(kind) else _UNITS[getattr(kind, "unit", "ms")]
        return "int64", f"{text}, {unit}"
    if pa.types.is_null(kind):
        return "null", ""
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype()).name, ""
    return "", ""


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without dictionary, and dates and times as integers in the file's unit, also in lists."""
    column = _simple(column)
    if pa.types.is_temporal(column.type):
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        column = pa.chunked_array([chunk.view(width) for chunk in column.chunks], type=width).cast(pa.int64())
    return column


def _simple(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without dictionary, and strings in the common layout."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if str(column.type) in _VIEWS:
        column = column.cast(_VIEWS[str(column.type)])
    return column


def converted(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    """A column in a type."""
    if element_type(kind) != kind:
        return column
    column = _simple(column)
    if (kind == "string" and _is_text(column.type)) or (kind == "binary" and _is_bytes(column.type)):
        return column
    wanted = arrow_type(kind)
    if kind != "string":
        column = plain(column)
    if pa.types.is_floating(column.type) and pa.types.is_integer(wanted):
        column = pc.if_else(pc.is_nan(column), None, column)  # An integer can't be NaN, so it is missing.
    # An integer that a float can't hold is an error in Arrow. A user who gives the type float64 wants it rounded.
    return column if column.type == wanted else column.cast(wanted, safe=not pa.types.is_floating(wanted))


def arrays(columns: Sequence[Column], values: Callable[[str], pa.ChunkedArray]) -> Columns:
    """Columns as numpy arrays of the schema's types, each of shape ``[records]`` or, for fixed lists, ``[records, N]``.

    Raises:
        pa.ArrowInvalid: a value does not fit, or an integer is missing.
    """
    return {column.name: _array(converted(values(column.name), column.type), column) for column in columns}


def _array(values: pa.ChunkedArray, column: Column) -> npt.NDArray[np.generic] | Ragged:
    if element_type(column.type) == column.type:
        return _flat(values, column)
    elements = _flat(converted(pc.list_flatten(values), element_type(column.type)), column)
    if column.type.startswith("list<"):
        return Ragged(values=elements, splits=_splits(values))
    rows = elements.reshape(-1, arrow_type(column.type).list_size)
    if not values.null_count:
        return rows
    every = np.full((len(values), rows.shape[1]), _fill(column), rows.dtype)
    every[values.is_valid().to_numpy()] = rows
    return every


def _flat(values: pa.ChunkedArray, column: Column) -> npt.NDArray[np.generic]:
    if values.null_count:
        fill = fill_scalar(column)
        if fill is not None:
            values = values.fill_null(fill.as_py())
        elif not pa.types.is_floating(values.type):
            raise pa.ArrowInvalid(f"column {column.name!r} is {column.type} and has a missing value")
    array: npt.NDArray[np.generic] = values.to_numpy()
    kind = element_type(column.type)
    return array if kind in ("string", "binary") else array.astype(np.dtype(kind), copy=False)


def _fill(column: Column) -> object:
    fill = fill_scalar(column)
    if fill is None and not element_type(column.type).startswith("float"):
        raise pa.ArrowInvalid(f"column {column.name!r} is {column.type} and has a missing value")
    return np.nan if fill is None else fill.as_py()


def _splits(lists: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def found(name: str, kind: str, was: str, values: pa.ChunkedArray, first: int) -> FoundColumn:
    """What some records hold; ``was``: its type in the file in words, where that is another one."""
    missing = values.null_count
    absent = values.is_null().to_numpy() if missing else np.empty(0, bool)
    least, greatest, inexact = _integers(values)
    if kind.startswith("list<") or kind.endswith("]"):
        elements = pc.list_flatten(values)
        least, greatest, inexact = _integers(elements)
        inexact = int(_rows_of(values, np.array([inexact]))[0]) if inexact >= 0 else -1
        if kind.startswith("list<"):
            absent, missing = np.empty(0, bool), 0  # A missing list is an empty one.
        if elements.null_count:
            absent = absent if absent.size else np.zeros(len(values), bool)
            absent[_rows_of(values, np.flatnonzero(elements.is_null().to_numpy()))] = True
            missing += elements.null_count
    return FoundColumn(
        name=name,
        type=kind,
        was=was,
        missing=missing,
        first_missing=first + int(np.argmax(absent)) if missing else -1,
        least=least,
        greatest=greatest,
        first_inexact=first + inexact if inexact >= 0 else -1,
    )


def _rows_of(lists: pa.ChunkedArray, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The lists that hold elements with these places among all elements."""
    return np.searchsorted(_splits(lists), places, side="right") - 1


def _integers(values: pa.ChunkedArray) -> tuple[int, int, int]:
    """Least and greatest of 64-bit integers, with 0, and the place of the first that ``float64`` can't hold."""
    if values.type not in (pa.int64(), pa.uint64()):
        return 0, 0, -1
    ends = pc.min_max(values)
    least, greatest = (int(ends[end].as_py() or 0) for end in ("min", "max"))
    if least >= -EXACT_MAX and greatest <= EXACT_MAX:
        return min(least, 0), max(greatest, 0), -1
    numbers = values.fill_null(0).to_numpy()
    # A float64 holds an integer exactly if 53 bits from its highest on are enough, so the lowest bit decides.
    magnitudes = np.where(numbers < 0, -numbers, numbers).astype(np.uint64)
    lowest = magnitudes & (~magnitudes + np.uint64(1))
    inexact = (magnitudes > EXACT_MAX) & (magnitudes >> np.uint64(53) >= lowest)
    return min(least, 0), max(greatest, 0), int(np.argmax(inexact)) if inexact.any() else -1


def row_hashes(table: pa.Table) -> Hashes:
    """Content hash of each row, shape ``[rows]``."""
    rows = np.zeros(table.num_rows, dtype=np.uint64)
    for column in table.columns:
        fold(rows, _cell_hashes(plain(column)))
    return rows


def _cell_hashes(column: pa.ChunkedArray) -> Hashes:
    missing = column.is_null().to_numpy() if column.null_count else None
    if pa.types.is_null(column.type):
        return np.full(len(column), _MISSING)
    if _is_list(column.type):
        hashes = _list_hashes(column)
    elif pa.types.is_decimal(column.type):
        hashes = content_hashes([str(value).encode() for value in column.to_pylist()])
    elif _is_bytes(column.type):
        hashes = content_hashes([value or b"" for value in column.cast(pa.large_binary()).to_pylist()])
    else:
        if missing is not None:
            column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
        hashes = mix64_array(_bits(column.to_numpy()))
    if missing is not None:
        hashes[missing] = _MISSING
    return hashes


def _list_hashes(column: pa.ChunkedArray) -> Hashes:
    """Of the length and, with its place in the list, each element."""
    cells = _cell_hashes(plain(pc.list_flatten(column)))
    splits = _splits(column)
    places = np.arange(len(cells), dtype=np.uint64) - np.repeat(splits[:-1], np.diff(splits)).astype(np.uint64)
    sums = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum(mix64_array(cells ^ mix64_array(places)), dtype=np.uint64)]
    )
    return mix64_array((sums[splits[1:]] - sums[splits[:-1]]) ^ np.diff(splits).astype(np.uint64))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        _is_text(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _bits(values: npt.NDArray[np.generic]) -> Hashes:
    if np.issubdtype(values.dtype, np.floating):
        wide = values.astype(np.float64)
        wide[np.isnan(wide)] = np.nan
        return wide.view(np.uint64)
    if values.dtype == np.uint64:
        return values.astype(np.uint64)
    return values.astype(np.int64).view(np.uint64)
