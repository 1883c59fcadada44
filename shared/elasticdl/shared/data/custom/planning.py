"""Plans the data of a user's reader: reads every record once, with the calls that workers will make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elasticdl.shared.data.column_types import FoundColumn, FoundSource, check_options
from elasticdl.shared.data.custom.checked_reader import CheckedReader
from elasticdl.shared.data.custom.protocol import ShardRange
from elasticdl.shared.data.formats import FORMATS, json_lines, tfrecord
from elasticdl.shared.data.formats.segments import Segment
from elasticdl.shared.data.hashing import content_hashes
from elasticdl.shared.data.index import Marks, SourceIndex
from elasticdl.shared.data.joined_columns import JoinedColumns
from elasticdl.shared.data.planning import PlannedData, with_columns_of
from elasticdl.shared.data.schema import Column, DataSchema, ReaderOptions, options_of, spec_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Source
from elasticdl.shared.job.spec import ReaderSpec

_NO_POSITIONS = 62
"""Bits of a position that do not count: there are no marks but those of the stride."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scanned:
    index: SourceIndex
    found: FoundSource
    has_columns: bool


def plan_reader(
    reader: CheckedReader, spec: ReaderSpec, options: ReaderOptions, *, stride: int, schema: DataSchema | None = None
) -> PlannedData:
    """Find the shards of a reader, and read and index all their records.

    Args:
        stride: records between two marks of an index: those of a minibatch. Tasks begin and end at marks, so a task's
            records are compared with the index when they are read.
        schema: of the training data, when this is the validation data: its columns and types are used.

    Raises:
        UserError: there are no records, or a shard, a record or a value is wrong; names it.
        Exception: what the guard of the reader makes of exceptions of user code.
    """
    check_options(options)
    if schema is not None:
        options = with_columns_of(options, schema)
    shards = reader.shards()
    if not shards:
        what = "Training" if schema is None else "Validation"
        raise UserError(f"{spec.function}({spec.origin!r}) has no shards", hint=f"{what} data needs one record.")
    scanned = [_scan(reader, shard, number, spec, options, stride) for number, shard in enumerate(shards)]
    data_format = json_lines.FORMAT if scanned[0].has_columns else tfrecord.FORMAT
    _check_kinds(scanned, options, schema, spec)
    joined = JoinedColumns(options, csv=False, may_lack=True)
    columns: tuple[Column, ...] = ()
    if data_format.has_columns:
        for each in scanned:
            joined.take(each.found)
        columns = joined.resolve(spec.origin, strict=True)
    planned = DataSchema(format=data_format.name, columns=columns, reader=spec)
    return PlannedData(
        sources=tuple(each.index.source for each in scanned),
        schema=planned,
        indices=tuple(each.index for each in scanned),
        options=options_of(spec_of(planned, csv_header=options.csv_header)),
        remarks=joined.remarks(columns),
    )


def _scan(
    reader: CheckedReader, shard: ShardRange, number: int, spec: ReaderSpec, options: ReaderOptions, stride: int
) -> _Scanned:
    marks = Marks(number, _NO_POSITIONS, stride)
    learner = json_lines.TypeLearner(shard.uri, options)
    kinds: set[bool] = set()
    for lines, has_columns in _parts(reader, shard, spec.records_per_task):
        kinds.add(has_columns)
        if len(kinds) > 1:
            raise _mixed(spec)
        if has_columns:
            learner.learn(lines)
        places = np.arange(marks.records, marks.records + len(lines), dtype=np.int64)
        marks.take(Segment(contents=content_hashes(lines), positions=places, end=marks.records + len(lines)))
    records, positions, sums = marks.arrays()
    source = Source(uri=shard.uri, size_bytes=0, etag=f"{int(sums[-1]):016x}", records=shard.records)
    index = SourceIndex(number=number, source=source, names=(), marks=records, positions=positions, sums=sums)
    columns: tuple[FoundColumn, ...] = learner.columns
    found = FoundSource(uri=shard.uri, records=shard.records, columns=columns)
    return _Scanned(index=index, found=found, has_columns=True in kinds)


def _parts(reader: CheckedReader, shard: ShardRange, records: int) -> Iterator[tuple[list[bytes], bool]]:
    """The records of a shard, task by task."""
    for start in range(0, shard.records, records):
        yield reader.read(shard.part(start, min(start + records, shard.records)))


def _check_kinds(
    scanned: Sequence[_Scanned], options: ReaderOptions, schema: DataSchema | None, spec: ReaderSpec
) -> None:
    has_columns = scanned[0].has_columns
    if any(each.has_columns != has_columns for each in scanned):
        raise _mixed(spec)
    if schema is not None and FORMATS[schema.format].has_columns != has_columns:
        raise UserError(
            f"{spec.function}() reads dicts from {(spec if has_columns else schema.reader or spec).origin!r} and bytes "
            f"or texts from {(schema.reader or spec if has_columns else spec).origin!r}",
            hint="Training data and validation data must have records of one kind.",
        )
    given = [flag for flag in ("columns", "column_types", "fill_missing") if getattr(options, flag)]
    if given and not has_columns:
        raise UserError(
            f"--{given[0]} has no effect, because the records of {spec.function}() are bytes or texts, without columns",
            hint="Parse them in the model's feed, or have read_records() yield dicts.",
            usage=True,
        )


def _mixed(spec: ReaderSpec) -> UserError:
    return UserError(
        f"{spec.function}({spec.origin!r}) reads dicts and bytes or texts",
        hint="All records of a data set must be of one kind.",
    )
