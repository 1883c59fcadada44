"""``elasticdl data inspect``: what a job would read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from google.protobuf.message import DecodeError

from elasticdl.cli.commands.column_summaries import ColumnSummary, add_block, shortened
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.output import print_json, print_table
from elasticdl.cli.indexing.scanning import scan_in_parallel
from elasticdl.cli.submission.flag_items import reader_options
from elasticdl.cli.submission.plan_data import left_out_lines
from elasticdl.shared.data import FORMATS, DataSchema, PlannedData, Reader, plan_sources
from elasticdl.shared.data.column_types import element_type
from elasticdl.shared.data.discovery import split_paths
from elasticdl.shared.data.formats.csv_file import delimiter_hint
from elasticdl.shared.data.joined_columns import ColumnError
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import DataFlags
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import display, open_store
from elasticdl.shared.words import count, size
from elasticdl.zoo.example_pb2 import Example

_FILES_SHOWN = 10
_BLOCK_RECORDS = 4096
_RECORDS_MAX = 1_000_000
"""Records whose values are summed up: they are read a second time."""
Summaries = dict[str, ColumnSummary]


def inspect_data(path: str, flags: DataFlags, samples: int, *, as_json: bool = False) -> None:
    """Print files, records, columns with what their values are, and the first records.

    Raises:
        UserError: the data is missing or wrong; names the file, and if possible the record. If only columns are wrong,
            it names all of them, and everything else is printed before.
    """
    console = plain_console()
    store = open_store(split_paths(path)[0])
    problems: list[ColumnError] = []
    data = plan_sources(path, reader_options(flags), store, scan=scan_in_parallel, report=problems.append)
    shown = _as_it_is(data, problems)
    reader = Reader(store=store, sources=data.sources, schema=shown, index=data.indices.__getitem__)
    summaries, records = _summaries(data, reader)
    first = [*_samples(data, reader, samples)]
    notes = [*_notes(path, data), *([f"Values are those of the first {records:,} records."] if records else [])]
    if as_json:
        facts = _facts(path, data, summaries)
        wrong = [{"problem": Exception.__str__(one), "remedy": one.hint} for one in problems]
        print_json(console, {**facts, "notes": notes, "samples": [*map(dict, first)], "problems": wrong})
    else:
        console.print(_summary(path, data))
        if len(data.sources) > 1:
            print_table(console, ("file", "records", "size"), _files(data))
        for line in [*notes, *_column_lines(data, summaries)]:
            console.print(line)
        for number, values in enumerate(first):
            console.print(f"Record {number}:")
            for name, value in values:
                console.print(f"  {name}: {value}" if name else f"  {value}")
    if problems:
        raise UserError("\n".join(map(str, problems)))


def _as_it_is(data: PlannedData, problems: list[ColumnError]) -> DataSchema:
    """The schema with other types for columns that can't be read with theirs; without those that have none."""
    wrong = {name: problem for problem in problems for name in problem.columns}
    data_format = FORMATS[data.schema.format]
    columns = []
    for column in data.schema.columns:
        if column.name not in wrong:
            columns.append(column)
        elif not wrong[column.name].have_one_type:
            continue
        elif kind := data_format.tolerant_type(column.type):
            columns.append(replace(column, type=kind, fill=None))
    return replace(data.schema, columns=tuple(columns))


def _summaries(data: PlannedData, reader: Reader) -> tuple[Summaries, int]:
    """What the values of each column are; and of how many records, if not of all."""
    types = dict(zip(data.schema.metadata.column_names, data.schema.metadata.column_types, strict=True))
    summaries = {
        column.name: ColumnSummary(are_texts=_is_text(column.type) and not _is_text(types[column.name]))
        for column in reader.schema.columns
    }
    if FORMATS[data.schema.format].records_are_files or not summaries:
        return {}, 0
    read = 0
    for number, source in enumerate(data.sources):
        for start in range(0, source.records, _BLOCK_RECORDS):
            if read >= _RECORDS_MAX:
                return summaries, read
            end = min(start + _BLOCK_RECORDS, source.records)
            add_block(summaries, reader.read(Shard(source=number, start=start, end=end)).columns)
            read += end - start
    return summaries, 0


def _is_text(kind: str) -> bool:
    return element_type(kind) == "string"


def _notes(path: str, data: PlannedData) -> Iterator[str]:
    yield from left_out_lines(path, data)
    columns = data.schema.columns
    if not columns and FORMATS[data.schema.format].has_columns:
        yield "There are no columns: all records are empty."
    if len(columns) == 1 and (hint := delimiter_hint(columns[0].name, data.schema.csv_delimiter)):
        yield f"There is only one column. {hint}"


def _facts(path: str, data: PlannedData, summaries: Summaries) -> dict[str, Any]:
    """For JSON."""
    return {
        "data": path,
        "format": data.schema.format,
        "records": sum(source.records for source in data.sources),
        "bytes": sum(source.size_bytes for source in data.sources),
        "files": [
            {"file": display(source.uri), "records": source.records, "bytes": source.size_bytes}
            for source in data.sources
        ],
        "columns": [
            {
                "name": column.name,
                "type": column.type,
                "remark": data.remarks.get(column.name, ""),
                **(summaries[column.name].facts() if column.name in summaries else {}),
            }
            for column in data.schema.columns
        ],
    }


def _column_lines(data: PlannedData, summaries: Summaries) -> Iterator[str]:
    if data.schema.columns:
        yield "Columns:"
    for column in data.schema.columns:
        remark = f" ({data.remarks[column.name]})" if column.name in data.remarks else ""
        values = summaries[column.name].describe(column.type) if column.name in summaries else ""
        yield f"  {column.name}: {column.type}{remark}{'; ' if values else ''}{values}"


def _summary(path: str, data: PlannedData) -> str:
    records = sum(source.records for source in data.sources)
    size_bytes = sum(source.size_bytes for source in data.sources)
    files = count(sum(len(index.files) or 1 for index in data.indices), "file")
    return f"{path}: {count(records, 'record')} in {files} ({data.schema.format}), {size(size_bytes)}"


def _files(data: PlannedData) -> Iterator[tuple[str, str, str]]:
    for source in data.sources[:_FILES_SHOWN]:
        yield display(source.uri), f"{source.records:,}", size(source.size_bytes)
    if rest := data.sources[_FILES_SHOWN:]:
        records, size_bytes = sum(source.records for source in rest), sum(source.size_bytes for source in rest)
        yield f"and {count(len(rest), 'file')} more", f"{records:,}", size(size_bytes)


def _samples(data: PlannedData, reader: Reader, samples: int) -> Iterator[list[tuple[str, str]]]:
    """The first records of the first file that has any: names and values."""
    number = next(number for number, source in enumerate(data.sources) if source.records)
    end = min(samples, data.sources[number].records)
    has_columns = data.schema.columns or FORMATS[data.schema.format].has_columns
    if not end or (has_columns and not reader.schema.columns):
        return
    block = reader.read(Shard(source=number, start=0, end=end))
    columns = {name: values.tolist() for name, values in block.columns.items()}
    for record in range(end):
        found = [(name, shortened(values[record])) for name, values in columns.items()]
        yield found or [*_example((block.lines or [])[record])]


def _example(data: bytes) -> list[tuple[str, str]]:
    """A TFRecord: the features of a ``tf.train.Example``, or the number of bytes of anything else."""
    try:
        features = Example.FromString(data).features.feature
    except DecodeError:
        return [("", f"{count(len(data), 'byte')}, not a tf.train.Example")]
    lines = []
    for name in sorted(features):
        kind = features[name].WhichOneof("kind")
        values = list(getattr(features[name], kind).value) if kind else []
        if kind == "bytes_list" and len(values) == 1 and not values[0].isascii():
            lines.append((name, count(len(values[0]), "byte")))
        else:
            lines.append((name, f"{str(kind).removesuffix('_list')} {shortened(values)}"))
    return lines
