"""The schema of a data set: formats, columns and types. It is fixed when the job is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import DataSpec, ReaderSpec

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """The user's options for reading data.

    Attributes:
        csv_header: the first line of every CSV file names the columns; otherwise they are called ``column_0``...
        csv_delimiter: one ASCII character between columns; empty: a comma, in ``.tsv`` files a tab.
        columns: names of the columns to read, in this order; empty: all.
        column_order: all columns of the first Parquet file, whose order all others are read in; without ``columns``.
        column_types: column -> type, where it is not to be inferred.
        fill_missing: column -> text of the value that replaces missing ones.
        class_names: of files in folders, in the order of their labels; empty: they are found.
    """

    csv_header: bool = True
    csv_delimiter: str = ""
    columns: tuple[str, ...] = ()
    column_order: tuple[str, ...] = ()
    column_types: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    fill_missing: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        delimiter = self.csv_delimiter
        if delimiter and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
            raise UserError(
                f"--csv_delimiter={delimiter!r} can't separate columns",
                hint="It must be one ASCII character other than a quote or a line break.",
                usage=True,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a data set.

    Attributes:
        name: unique.
        type: ``string``, ``binary``, the name of a numpy dtype, ``list<TYPE>``, or ``TYPE[N]`` and ``TYPE[NxM]`` for
            arrays of fixed size.
        fill: text of the value that replaces missing ones; None: NaN, an empty string, and for other types an error.
    """

    name: str
    type: str
    fill: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Description of the data, which a user's ``feed`` gets.

    Attributes:
        format: ``csv``, ``json``, ``tfrecord``, ``parquet``, ``numpy``, ``idx``, ``images``, ``texts`` or ``recordio``.
        column_names: in the order of the columns; empty for TFRecord and RecordIO.
        column_types: for each column ``string`` (object arrays of ``str``), ``binary`` (of ``bytes``), the name of a
            numpy dtype, ``list<TYPE>`` (ragged), ``TYPE[N]`` (N values in each record) or ``TYPE[NxM]`` (a matrix).
        class_names: of files in folders: ``class_names[label]`` is the folder's name; empty for other formats.
    """

    format: str
    column_names: tuple[str, ...] = ()
    column_types: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSchema:
    """How to read every source of a data set; fixed when the job is planned.

    Attributes:
        format: name of the format in ``elasticdl.shared.data.formats.FORMATS``.
        columns: those that are read, typed over all sources; empty for TFRecord.
        file_columns: CSV: names of all columns in the files, in file order.
        reader: of the model file, which gives the records; None: they are in files.
        class_names: of files in folders, in the order of their labels.
    """

    format: str
    columns: tuple[Column, ...] = ()
    csv_delimiter: str = ","
    file_columns: tuple[str, ...] = ()
    reader: ReaderSpec | None = None
    class_names: tuple[str, ...] = ()

    @property
    def metadata(self) -> Metadata:
        """The description that the user's code gets."""
        return Metadata(
            format=self.format,
            column_names=tuple(column.name for column in self.columns),
            column_types=tuple(column.type for column in self.columns),
            class_names=self.class_names,
        )


def spec_of(schema: DataSchema, *, csv_header: bool) -> DataSpec:
    """A schema as a job's specification records it."""
    return DataSpec(
        format=schema.format,
        column_names=schema.metadata.column_names,
        column_types=schema.metadata.column_types,
        csv_header=csv_header,
        csv_delimiter=schema.csv_delimiter,
        file_columns=schema.file_columns,
        fill_missing={column.name: column.fill for column in schema.columns if column.fill is not None},
        reader=schema.reader,
        class_names=schema.class_names,
    )


def schema_of(data: DataSpec) -> DataSchema:
    """The schema that a job's specification records."""
    columns = zip(data.column_names, data.column_types, strict=True)
    return DataSchema(
        format=data.format,
        columns=tuple(Column(name=name, type=kind, fill=data.fill_missing.get(name)) for name, kind in columns),
        csv_delimiter=data.csv_delimiter,
        file_columns=data.file_columns or data.column_names,
        reader=data.reader,
        class_names=data.class_names,
    )


def options_of(data: DataSpec) -> ReaderOptions:
    """Reader options that give the schema which a job's specification records."""
    return ReaderOptions(
        csv_header=data.csv_header,
        csv_delimiter=data.csv_delimiter,
        columns=data.column_names,
        column_types=dict(zip(data.column_names, data.column_types, strict=True)),
        fill_missing=data.fill_missing,
        class_names=data.class_names,
    )
