"""Plans a data set: from paths to its sources, schema and indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from elasticdl.shared.data.column_types import check_options
from elasticdl.shared.data.discovery import discover
from elasticdl.shared.data.formats import FORMATS
from elasticdl.shared.data.formats.data_format import DataObject
from elasticdl.shared.data.index import ScannedSource, SourceIndex, scan_sources
from elasticdl.shared.data.indices import IndexFile, IndexWriter
from elasticdl.shared.data.indices.shared_index import SharedIndex, facts_of
from elasticdl.shared.data.joined_columns import ColumnError, JoinedColumns, refuse
from elasticdl.shared.data.schema import DataSchema, ReaderOptions, schema_of, spec_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Source
from elasticdl.shared.job.spec import DataSpec
from elasticdl.shared.messages.json_codec import JsonCodec
from elasticdl.shared.storage import ObjectStore, display

_CLASSES_SHOWN = 10
_DATA = JsonCodec(DataSpec)
Scan = Callable[[ObjectStore, Sequence[DataObject], ReaderOptions, Sequence[int]], Iterable[ScannedSource]]
"""Reads files of a data set from beginning to end, in their order; gets the number of each in the plan."""


class PlannedData(NamedTuple):
    """A data set, ready for a plan.

    Attributes:
        sources: in planning order; very many are packed.
        indices: of each source; those of files are in a temporary file.
        remarks: what to say about a column besides its type.
        shared: where the next job may find the indices; None: they can't be shared.
        reused: number of sources that were not read, because their indices are from there.
    """

    sources: Sequence[Source]
    schema: DataSchema
    indices: Sequence[SourceIndex]
    options: ReaderOptions
    remarks: Mapping[str, str]
    shared: SharedIndex | None = None
    reused: int = 0


def plan_sources(
    paths: str,
    options: ReaderOptions,
    store: ObjectStore,
    *,
    schema: DataSchema | None = None,
    raw_lines: bool = False,
    scan: Scan = scan_sources,
    shared_folder: str = "",
    report: Callable[[ColumnError], None] = refuse,
) -> PlannedData:
    """Find, read and index a data set; a file is read once from beginning to end, if no former job has indexed it.

    Args:
        paths: files, folders or globs, separated by commas.
        schema: of the training data, when this is the validation data: its columns and types are used.
        raw_lines: the model's ``feed`` parses CSV lines itself, so types only describe the data.
        shared_folder: URI of the folder of indices that jobs share; empty: they share none.
        report: is called with each problem of a column whose values are otherwise all right; raises it if not given.

    Raises:
        UserError: the data is missing, empty, damaged or inconsistent; names the file, and if possible the record.
    """
    objects = discover(paths, store)
    data_format = FORMATS[objects[0].format]
    options = _completed(options, objects, schema, store, raw_lines=raw_lines)
    settings = facts_of(options) | {"raw_lines": raw_lines, "structure": _DATA.structure, "format": data_format.name}
    shared = SharedIndex(shared_folder, paths, objects, settings)
    previous = shared.load(objects)
    if previous.file is not None and previous.is_current:
        return _planned(previous.file, options, shared)._replace(reused=len(objects))
    raw_lines = raw_lines and data_format.infers_types
    joined = JoinedColumns(options, csv=data_format.infers_types, may_lack=data_format.may_lack_columns)
    changed = [objects[number] for number in previous.changed]
    with IndexWriter(has_columns=shared.is_possible) as writer:
        names = _scan_to(writer, previous.joined(scan(store, changed, options, previous.changed)), joined)
        if not joined.records:
            what = "Training" if schema is None else "Validation"
            raise UserError(f"{paths} has no records", hint=f"{what} data needs at least one.")
        columns = joined.resolve(paths, strict=not raw_lines, report=report)
        planned = DataSchema(
            format=data_format.name,
            columns=columns,
            csv_delimiter=options.csv_delimiter,
            file_columns=names if data_format.infers_types else (),
            class_names=options.class_names,
        )
        remarks = {} if raw_lines else {**joined.remarks(columns), **_class_remark(options.class_names)}
        data = _DATA.dump(spec_of(planned, csv_header=options.csv_header))
        indices = writer.finish({"content": shared.content, "data": data, "remarks": remarks})
    result = _planned(indices, options, shared if shared.is_possible else None)
    return result._replace(reused=len(objects) - len(changed))


def _planned(indices: IndexFile, options: ReaderOptions, shared: SharedIndex | None) -> PlannedData:
    data: DataSpec = _DATA.load(indices.facts["data"])
    schema = replace(schema_of(data), file_columns=data.file_columns)
    return PlannedData(
        sources=Source.sequence_of(index.source for index in indices),
        schema=schema,
        indices=indices,
        options=replace(options, columns=schema.metadata.column_names, column_order=()),
        remarks=indices.facts["remarks"],
        shared=shared,
    )


def _scan_to(writer: IndexWriter, scanned: Iterable[ScannedSource], joined: JoinedColumns) -> tuple[str, ...]:
    """Write the indices of all sources and join their columns on the way; returns the names of these."""
    named: SourceIndex | None = None
    for each in scanned:
        index = each.index
        named = named or (index if index.names else None)
        if named and index.names and index.names != named.names:
            raise UserError(
                f"columns differ: {display(named.source.uri)} has {', '.join(named.names)}; "
                f"{display(index.source.uri)} has {', '.join(index.names)}",
                hint="All files of a data set must have the same columns; in CSV files in the same order.",
            )
        writer.add(index, each.found.columns)
        joined.take(each.found)
    return named.names if named else ()


def _class_remark(names: Sequence[str]) -> Mapping[str, str]:
    """The classes of files in folders, as a remark about their labels."""
    shown = [f"{label} is {name}" for label, name in enumerate(names[:_CLASSES_SHOWN])]
    more = [f"{len(names) - len(shown)} more"] if len(names) > len(shown) else []
    return {"label": ", ".join(shown + more)} if names else {}


def _completed(
    options: ReaderOptions,
    objects: Sequence[DataObject],
    schema: DataSchema | None,
    store: ObjectStore,
    *,
    raw_lines: bool,
) -> ReaderOptions:
    """Options with a delimiter, and with the columns and types of the training data for validation data."""
    options = replace(options, csv_delimiter=options.csv_delimiter or objects[0].delimiter)
    check_options(options)
    _check_has_columns(options, objects[0], raw_lines=raw_lines)
    if schema is None:
        return FORMATS[objects[0].format].completed(store, objects, options)
    if objects[0].format != schema.format:
        raise UserError(
            f"{display(objects[0].info.uri)} is {objects[0].format}, the training data {schema.format}",
            hint="Give both in one format.",
        )
    return with_columns_of(options, schema)


def with_columns_of(options: ReaderOptions, schema: DataSchema) -> ReaderOptions:
    """Options that read the columns of a schema, with its types."""
    names = schema.metadata.column_names
    return replace(
        options,
        columns=names,
        column_types=dict(zip(names, schema.metadata.column_types, strict=True)),
        class_names=schema.class_names,
    )


def _check_has_columns(options: ReaderOptions, data: DataObject, *, raw_lines: bool) -> None:
    """Refuse options about columns where the model's ``feed`` parses whole records."""
    given = [flag for flag in ("columns", "column_types", "fill_missing") if getattr(options, flag)]
    data_format = FORMATS[data.format]
    if given and not data_format.has_columns:
        raise UserError(
            f"--{given[0]} has no effect on {display(data.info.uri)}, because {data_format.title} has no columns",
            hint="Parse the records in the model's feed, with tf.io.parse_single_example.",
            usage=True,
        )
    if given and data_format.infers_types and raw_lines:
        raise UserError(
            f"--{given[0]} has no effect, because the model's feed parses the lines of CSV files itself",
            hint="Define feed_batch(records, mode, metadata) instead, which gets typed columns.",
            usage=True,
        )
