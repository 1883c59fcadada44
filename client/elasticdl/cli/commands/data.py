"""``elasticdl data put``, ``elasticdl data convert`` and ``elasticdl zoo data``: data sets that are written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath

from elasticdl.cli.display.consoles import plain_console
from elasticdl.shared.data import FORMATS, PlannedData, Reader, ReaderOptions, discover, plan_sources, put
from elasticdl.shared.data.discovery import split_paths
from elasticdl.shared.data.formats import recordio, tfrecord
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import display, open_store, scheme_of, to_uri
from elasticdl.shared.storage.uris import local_path
from elasticdl.zoo import MODELS, write

_RECORDS_READ = 1024
"""Records that are read at a time."""


def write_example(name: str, folder: Path, records: int | None, seed: int, source: Path | None) -> None:
    """Write an example data set and print the command that trains on it."""
    summary = write(name, folder, records=records, seed=seed, source=source)
    console = plain_console()
    console.print(
        f"{summary.train}: {summary.train_records:,} records, {summary.test}: {summary.test_records:,} records"
    )
    for metric, value in summary.best.items():
        console.print(f"The best possible {metric} on {summary.test} is {value:.4f}.")
    console.print(
        f"Train with: elasticdl train --model_def={MODELS[name]}.custom_model --training_data={summary.train} "
        f"--validation_data={summary.test} --output=output"
    )


def convert(source: str, destination: str, compression: str) -> None:
    """Write all records of a data set to one RecordIO or TFRecord file.

    Args:
        source: files, folders or globs of formats whose records are bytes.
        destination: path or URI of the file; its extension names the format.

    Raises:
        UserError: the formats can't be converted, the file exists, or a record of the source is damaged.
    """
    target = to_uri(destination)
    writers: dict[str, Callable[[Path, Iterable[bytes]], int]] = {
        ".recordio": partial(recordio.write_records, compression=compression),
        ".tfrecord": tfrecord.write_records,
    }
    write_records = writers.get(PurePosixPath(target).suffix)
    if write_records is None:
        raise UserError(
            f"{destination} does not end with .recordio or .tfrecord", hint="Give the name of one file.", usage=True
        )
    store = open_store(split_paths(source)[0])
    first = discover(source, store)[0]
    if FORMATS[first.format].has_columns:
        raise UserError(
            f"{display(first.info.uri)} is {first.name_of_format}, whose records have columns",
            hint="Only TFRecord and RecordIO files are converted into each other.",
        )
    if next((info for info in open_store(target).list(target) if info.uri == target), None):
        raise UserError(f"{destination} exists", hint="Give another name, or delete the file.", usage=True)
    data = plan_sources(source, ReaderOptions(), store)
    reader = Reader(store=store, sources=data.sources, schema=data.schema, index=data.indices.__getitem__)
    with tempfile.TemporaryDirectory(prefix="elasticdl-convert-") as folder:
        # A local file appears under its name only once it is whole. Object storage takes it as a whole, too.
        path = local_path(target) if scheme_of(target) == "file" else Path(folder) / "data"
        written = write_records(path, _records(reader, data))
        if scheme_of(target) != "file":
            open_store(target).write(target, path)
    size = open_store(target).info(target).size_bytes
    plain_console().print(f"{display(target)}  {written:,} records, {size:,} bytes")


def _records(reader: Reader, data: PlannedData) -> Iterator[bytes]:
    for number, source in enumerate(data.sources):
        for start in range(0, source.records, _RECORDS_READ):
            end = min(start + _RECORDS_READ, source.records)
            yield from reader.read(Shard(source=number, start=start, end=end)).lines or ()


def upload(source: Path, destination: str) -> None:
    """Copy a local file or folder to object storage; prints one line per object."""
    console = plain_console()
    written = put(
        source,
        destination,
        open_store(destination),
        progress=lambda info: console.print(f"{display(info.uri)}  {info.size_bytes:,} bytes"),
    )
    console.print(f"Uploaded {len(written)} objects, {sum(info.size_bytes for info in written):,} bytes.")
