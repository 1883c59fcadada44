"""``elasticdl data inspect``: what a job would read."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError
from rich.table import Table

from elasticdl.cli.data_flags import DataFlags, reader_options
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.quantities import count, size
from elasticdl.cli.indexing.scanning import scan_in_parallel
from elasticdl.cli.submission.plan_data import column_lines
from elasticdl.shared.data import PlannedData, Reader, plan_sources
from elasticdl.shared.data.discovery import split_paths
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import ObjectStore, display, open_store
from elasticdl.zoo.example_pb2 import Example

_FILES_SHOWN = 10
_VALUES_SHOWN = 5
_TEXT_SHOWN = 60


def inspect_data(path: str, flags: DataFlags, samples: int) -> None:
    """Print files, records, columns and the first records.

    Args:
        path: files, folders or globs, separated by commas.
        flags: how the data is read.
        samples: records to print.

    Raises:
        UserError: the data is missing or wrong; names the file, and if possible the record.
    """
    console = plain_console()
    store = open_store(split_paths(path)[0])
    data = plan_sources(path, reader_options(flags), store, scan=scan_in_parallel)
    console.print(_summary(path, data))
    if len(data.sources) > 1:
        console.print(_files(data))
    for line in column_lines(data):
        console.print(line)
    for record, lines in _samples(data, store, samples):
        console.print(f"Record {record}:")
        for line in lines:
            console.print(f"  {line}")


def _summary(path: str, data: PlannedData) -> str:
    records = sum(source.records for source in data.sources)
    size_bytes = sum(source.size_bytes for source in data.sources)
    files = count(sum(len(index.files) or 1 for index in data.indices), "file")
    return f"{path}: {count(records, 'record')} in {files} ({data.schema.format.value}), {size(size_bytes)}"


def _files(data: PlannedData) -> Table:
    table = Table()
    for column in ("file", "records", "size"):
        table.add_column(column, justify="left" if column == "file" else "right", overflow="fold")
    for source in data.sources[:_FILES_SHOWN]:
        table.add_row(display(source.uri), f"{source.records:,}", size(source.size_bytes))
    if rest := data.sources[_FILES_SHOWN:]:
        records, size_bytes = sum(source.records for source in rest), sum(source.size_bytes for source in rest)
        table.add_row(f"and {count(len(rest), 'file')} more", f"{records:,}", size(size_bytes))
    return table


def _samples(data: PlannedData, store: ObjectStore, samples: int) -> Iterator[tuple[int, list[str]]]:
    """The first records of the first file that has any, each as lines."""
    number = next(number for number, source in enumerate(data.sources) if source.records)
    reader = Reader(store=store, sources=data.sources, schema=data.schema, index=data.indices.__getitem__)
    end = min(samples, data.sources[number].records)
    if not end:
        return
    block = reader.read(Shard(source=number, start=0, end=end))
    for record in range(end):
        columns = [f"{name}: {_shown(values.tolist()[record])}" for name, values in block.columns.items()]
        yield record, columns or _example((block.lines or [])[record])


def _example(data: bytes) -> list[str]:
    """A TFRecord: the features of a ``tf.train.Example``, or the number of bytes of anything else."""
    try:
        features = Example.FromString(data).features.feature
    except DecodeError:
        return [f"{count(len(data), 'byte')}, not a tf.train.Example"]
    lines = []
    for name in sorted(features):
        kind = features[name].WhichOneof("kind")
        values = list(getattr(features[name], kind).value) if kind else []
        if kind == "bytes_list" and len(values) == 1 and not values[0].isascii():
            lines.append(f"{name}: {count(len(values[0]), 'byte')}")
        else:
            lines.append(f"{name}: {str(kind).removesuffix('_list')} {_shown(values)}")
    return lines


def _shown(value: object) -> str:
    """A value, shortened."""
    if isinstance(value, list):
        more = f", ... ({len(value):,} values)" if len(value) > _VALUES_SHOWN else ""
        return f"[{', '.join(map(_shown, value[:_VALUES_SHOWN]))}{more}]"
    text = repr(value)
    return text if len(text) <= _TEXT_SHOWN else text[:_TEXT_SHOWN] + "..."
