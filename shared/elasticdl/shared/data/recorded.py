"""How a job's data is read, as its specification recorded it: in the readers' own types."""

from __future__ import annotations

from elasticdl.shared.data import DataFormat, DataSchema, ReaderOptions
from elasticdl.shared.data.schema import Column
from elasticdl.shared.job.spec import DataSpec


def schema_of(data: DataSpec) -> DataSchema:
    """The recorded schema."""
    columns = zip(data.column_names, data.column_types, strict=True)
    return DataSchema(
        format=DataFormat(data.format),
        columns=tuple(Column(name=name, type=kind) for name, kind in columns),
        csv_delimiter=data.csv_delimiter,
    )


def options_of(data: DataSpec) -> ReaderOptions:
    """The recorded options."""
    return ReaderOptions(csv_header=data.csv_header, csv_delimiter=data.csv_delimiter)
