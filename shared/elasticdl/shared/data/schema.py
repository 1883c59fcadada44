"""The schema of a data set: formats, columns and types. It is fixed when the job is planned."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum

import numpy as np

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import DataSpec


class DataFormat(Enum):
    """How records are stored."""

    CSV = "csv"
    TFRECORD = "tfrecord"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """The user's options for reading data.

    Attributes:
        csv_header: the first line of every CSV file names the columns; otherwise they are called ``column_0``...
        csv_delimiter: one ASCII character between columns.
    """

    csv_header: bool = True
    csv_delimiter: str = ","

    def __post_init__(self) -> None:
        if len(self.csv_delimiter) != 1 or not self.csv_delimiter.isascii() or self.csv_delimiter in '"\r\n':
            raise UserError(
                f"--csv_delimiter={self.csv_delimiter!r} can't separate columns",
                hint="It must be one ASCII character other than a quote or a line break.",
                usage=True,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of one source.

    Attributes:
        name: unique in the source.
        type: CSV: ``int64``, ``float64``, ``string`` or ``null`` if it has no value. Parquet: a numpy dtype's
            name, ``string`` or ``binary``.
    """

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Description of the data, which a user's ``feed`` gets.

    Attributes:
        format: ``csv``, ``tfrecord`` or ``parquet``.
        column_names: in file order; empty for TFRecord.
        column_types: for each column ``string`` (object arrays of ``str``), ``binary`` (of ``bytes``) or the name of a
            numpy dtype; a number column with missing values is ``float64`` and has NaN there.
    """

    format: str
    column_names: tuple[str, ...] = ()
    column_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSchema:
    """How to read every source of a data set; fixed when the job is planned.

    Attributes:
        format: one for all sources.
        columns: typed over all sources; empty for TFRecord.
        csv_delimiter: see ``ReaderOptions``.
    """

    format: DataFormat
    columns: tuple[Column, ...] = ()
    csv_delimiter: str = ","

    @property
    def metadata(self) -> Metadata:
        """The description that the user's code gets."""
        return Metadata(
            format=self.format.value,
            column_names=tuple(column.name for column in self.columns),
            column_types=tuple(column.type for column in self.columns),
        )

    def to_json(self) -> str:
        """Canonical JSON."""
        return json.dumps(asdict(self) | {"format": self.format.value}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> DataSchema:
        """Inverse of ``to_json``."""
        facts = json.loads(text)
        return cls(
            format=DataFormat(facts["format"]),
            columns=tuple(Column(**column) for column in facts["columns"]),
            csv_delimiter=facts["csv_delimiter"],
        )


def schema_of(data: DataSpec) -> DataSchema:
    """The schema that a job's specification records."""
    columns = zip(data.column_names, data.column_types, strict=True)
    return DataSchema(
        format=DataFormat(data.format),
        columns=tuple(Column(name=name, type=kind) for name, kind in columns),
        csv_delimiter=data.csv_delimiter,
    )


def options_of(data: DataSpec) -> ReaderOptions:
    """The reader options that a job's specification records."""
    return ReaderOptions(csv_header=data.csv_header, csv_delimiter=data.csv_delimiter)


_CSV_TYPES = ("null", "int64", "float64", "string")
"""Values of each type can be read as the next type, except that a missing value can't be int64."""


def wider_csv_type(one: str, other: str) -> str:
    """The narrowest CSV type that holds the values of both."""
    if {one, other} == {"null", "int64"}:
        return "float64"
    return max(one, other, key=_CSV_TYPES.index)


def wider_numpy_type(one: str, other: str) -> str | None:
    """The same for types of Parquet columns; None if no type holds both."""
    if one == other:
        return one
    if {one, other} & {"string", "binary"}:
        return None
    return np.result_type(one, other).name
