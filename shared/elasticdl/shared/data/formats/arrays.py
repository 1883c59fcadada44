"""Arrays in files, read by ranges of their first dimension: ``.npy``, ``.npz`` and IDX.

Each array is a column, and its first dimension counts the records. An ``.npy`` file of a structured type has a column
for each field. Nothing is loaded that is not asked for: the place of a record follows from the array's header.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elasticdl.shared.data.formats.gzip_content import GzipContent, is_compressed
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectStore, display

Array = npt.NDArray[Any]
_KINDS = "biufSUMm"
"""Kinds of NumPy types that can be read: booleans, numbers, texts, dates and durations."""
_UNITS = {"D": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds", "us": "microseconds"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """An array in a file.

    Attributes:
        name: of the array in messages; empty: the file has only this one.
        offset: bytes before the first element, in the content of a compressed file or member.
        size_bytes: of the content; None: it is compressed, so that only reading shows it.
        deflated_at: where in a zip file the compressed content begins; None: it is not in one, or not compressed.
    """

    uri: str
    name: str = ""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    size_bytes: int | None
    deflated_at: int | None = None

    def __post_init__(self) -> None:
        needed = self.offset + math.prod(self.shape) * self.dtype.itemsize
        if self.size_bytes is not None and self.size_bytes < needed:
            raise self.truncated(max(self.size_bytes - self.offset, 0) // max(self.row_bytes, 1))

    @property
    def records(self) -> int:
        """Its first dimension."""
        return self.shape[0] if self.shape else 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a record."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def text(self) -> str:
        """Names it in messages: ``data.npz: array 'x'``."""
        return display(self.uri) + (f": array {self.name!r}" if self.name else "")

    def truncated(self, records: int) -> UserError:
        """The error for an array that is shorter than its header says.

        Args:
            records: how many of its records are whole.
        """
        return UserError(
            f"{self.text} is truncated: its header promises {self.records:,} records, record {records} (from 0) is "
            "incomplete",
            hint="Write the file again, or copy it again.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayColumn:
    """A column of a file.

    Attributes:
        name: unique in the file.
        field: of the array's structured type; empty: the column is the whole array.
    """

    name: str
    array: StoredArray
    field: str = ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element, as it is stored."""
        return self._field.base if self.field else self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record."""
        return self.array.shape[1:] + (self._field.shape if self.field else ())

    @property
    def _field(self) -> np.dtype[Any]:
        fields = self.array.dtype.fields
        assert fields is not None
        return fields[self.field][0]

    @property
    def type(self) -> tuple[str, str]:
        """The column's type, and the type in the file in words where it is another one.

        Raises:
            UserError: it can't be read.
        """
        dtype, was = self.dtype, ""
        if dtype.kind not in _KINDS or (dtype.itemsize > 8 and dtype.kind == "f"):
            raise UserError(
                f"{self.array.text}: column {self.name!r} has type {dtype}, which can't be read",
                hint="Store numbers, booleans, texts or dates, or leave it out with --columns.",
            )
        if dtype.kind in "Mm":
            unit = np.datetime_data(dtype)[0]
            kind, was = "int64", f"{dtype.name}, {_UNITS.get(unit, unit)}"
        else:
            kind = {"S": "binary", "U": "string"}.get(dtype.kind) or dtype.newbyteorder("=").name
        shape = f"[{'x'.join(map(str, self.shape))}]" if self.shape else ""
        return kind + shape, was


def columns_of(array: StoredArray, name: str) -> tuple[ArrayColumn, ...]:
    """The columns of an array: one of that name, or its fields."""
    if array.dtype.names is None:
        return (ArrayColumn(name=name, array=array),)
    return tuple(ArrayColumn(name=field, array=array, field=field) for field in array.dtype.names)


class ArrayContent:
    """Reads ranges of arrays; not safe to share between threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._compressed = GzipContent(store)

    def read(self, array: StoredArray, start: int, end: int) -> Array:
        """The records ``[start, end)`` as they are stored, shape ``[end - start, ...]``.

        Raises:
            UserError: the file is damaged or truncated; names the first record that is missing.
        """
        begin, size = array.offset + start * array.row_bytes, (end - start) * array.row_bytes
        if array.deflated_at is not None:
            data = self._compressed.read(array.uri, begin, size, deflated_at=array.deflated_at)
        elif is_compressed(array.uri):
            data = self._compressed.read(array.uri, begin, size)
        else:
            data = self._store.read(array.uri, begin, size)
        if len(data) != size:
            raise array.truncated(start + len(data) // array.row_bytes)
        return np.frombuffer(data, array.dtype).reshape(end - start, *array.shape[1:])

    def columns(self, columns: Sequence[ArrayColumn], start: int, end: int) -> list[Array]:
        """The records of several columns; each array is read once."""
        read: dict[tuple[str, str], Array] = {}
        found = []
        for column in columns:
            key = column.array.uri, column.array.name
            if key not in read:
                read[key] = self.read(column.array, start, end)
            found.append(read[key][column.field] if column.field else read[key])
        return found
