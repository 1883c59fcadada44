"""Plans a data set: from a path to its sources, schema and indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from elasticdl.shared.data.discovery import discover
from elasticdl.shared.data.index import SourceIndex, build_index
from elasticdl.shared.data.reader import Reader
from elasticdl.shared.data.schema import (
    Column,
    DataFormat,
    DataSchema,
    ReaderOptions,
    wider_csv_type,
    wider_numpy_type,
)
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard, Source
from elasticdl.shared.storage import ObjectStore, display

_READ_RECORDS = 1 << 16
"""Records that are read at a time to find a wrong value."""


class PlannedData(NamedTuple):
    """A data set, ready for a plan.

    Attributes:
        sources: in planning order.
        schema: how to read all of them.
        indices: of each source.
    """

    sources: tuple[Source, ...]
    schema: DataSchema
    indices: tuple[SourceIndex, ...]


def plan_sources(
    training_data: str,
    options: ReaderOptions,
    store: ObjectStore,
    *,
    schema: DataSchema | None = None,
) -> PlannedData:
    """Find, read and index a data set; the data is read once from beginning to end.

    Args:
        training_data: file, folder or glob.
        options: how to read it.
        store: holds the data.
        schema: of the training data, when this is the validation data: it must fit, and is returned unchanged.

    Raises:
        UserError: the data is missing, empty, damaged or inconsistent; names the file, and if possible the record.
    """
    objects = discover(training_data, store)
    indices = [build_index(store, data, number, options) for number, data in enumerate(objects)]
    if not any(index.source.records for index in indices):
        raise UserError(f"{training_data} has no records", hint="Training needs at least one.")
    found = DataSchema(
        format=objects[0].format,
        columns=_joined(indices, objects[0].format),
        csv_delimiter=options.csv_delimiter,
    )
    if schema is not None:
        _check_fits(training_data, found, schema)
    planned = PlannedData(tuple(index.source for index in indices), schema or found, tuple(indices))
    if schema is not None:
        _check_values_fit(store, planned)
    return planned


def _joined(indices: Sequence[SourceIndex], data_format: DataFormat) -> tuple[Column, ...]:
    """The columns of the data set, each with a type that holds the values of all sources."""
    named = [index for index in indices if index.columns]
    if not named:
        return ()
    first = named[0]
    names = [column.name for column in first.columns]
    types: list[str] = []
    for index in named:
        found = [column.name for column in index.columns]
        if found != names:
            raise UserError(
                f"columns differ: {display(first.source.uri)} has {', '.join(names)}; "
                f"{display(index.source.uri)} has {', '.join(found)}",
                hint="All files of a data set must have the same columns in the same order.",
            )
        if index.source.records:
            kinds = [column.type for column in index.columns]
            types = _wider(names, types, kinds, index.source, data_format) if types else kinds
    # A column without values is read as text.
    return tuple(
        Column(name=name, type="string" if kind == "null" else kind)
        for name, kind in zip(names, types or ["null"] * len(names), strict=True)
    )


def _wider(
    names: Sequence[str], known: Sequence[str], kinds: Sequence[str], source: Source, data_format: DataFormat
) -> list[str]:
    types = []
    for name, one, other in zip(names, known, kinds, strict=True):
        wider = wider_csv_type(one, other) if data_format is DataFormat.CSV else wider_numpy_type(one, other)
        if wider is None:
            raise UserError(
                f"column {name!r} is {other} in {display(source.uri)} and {one} in the files before it",
                hint="Write all files with one schema.",
            )
        types.append(wider)
    return types


def _check_fits(training_data: str, found: DataSchema, wanted: DataSchema) -> None:
    """Check that the validation data has the training data's schema."""
    if found.format is not wanted.format:
        raise UserError(
            f"{training_data} is {found.format.value}, the training data {wanted.format.value}",
            hint="Give both in one format.",
        )
    names, expected = found.metadata.column_names, wanted.metadata.column_names
    if names != expected:
        raise UserError(
            f"{training_data} has columns {', '.join(names)}, the training data {', '.join(expected)}",
            hint="Both need the same columns in the same order.",
        )


def _check_values_fit(store: ObjectStore, planned: PlannedData) -> None:
    """Read the CSV files of validation data that have a value of another type than the training data.

    Raises:
        UserError: names the record.
    """
    if planned.schema.format is not DataFormat.CSV:
        return
    reader = Reader(store=store, sources=planned.sources, schema=planned.schema, index=planned.indices.__getitem__)
    for number, index in enumerate(planned.indices):
        pairs = zip(index.columns, planned.schema.columns, strict=True) if index.source.records else ()
        if any(wider_csv_type(wanted.type, found.type) != wanted.type for found, wanted in pairs):
            for start in range(0, index.source.records, _READ_RECORDS):
                end = min(start + _READ_RECORDS, index.source.records)
                _ = reader.read(Shard(source=number, start=start, end=end)).columns
