"""What readers of files and readers of model files have in common: any range of a source is exactly its records."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import PlannedData, Reader, ReaderOptions, RecordBlock, plan_sources, record_hash
from elasticdl.shared.data.custom import CheckedReader, CustomShardReader, ReadTask, plan_reader
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.job.spec import ReaderSpec
from elasticdl.shared.storage import MemoryStore
from elasticdl.shared.storage.tfrecord_frame import frame

RECORDS, STRIDE, TASK = 50, 4, 12
SPEC = ReaderSpec(function="custom_data_reader", origin="table", records_per_task=TASK)
Read = Callable[[Shard], RecordBlock]


class Numbers:
    """Records ``100`` to ``149`` of a table, in two shards of which the second continues the first."""

    def __init__(self, *, as_bytes: bool, shift: int = 0) -> None:
        self.as_bytes = as_bytes
        self.shift = shift

    def create_shards(self) -> list[tuple[str, int, int]]:
        return [("numbers", 100, 20), ("numbers", 120, RECORDS - 20)]

    def read_records(self, task: ReadTask) -> list[object]:
        numbers = range(task.shard.start - 100 + self.shift, task.shard.end - 100 + self.shift)
        return [b"%d" % number if self.as_bytes else {"x": number} for number in numbers]


def checked(reader: object) -> CheckedReader:
    return CheckedReader(
        lambda: reader, function="custom_data_reader", path=Path("m.py"), guard=lambda _: contextlib.nullcontext()
    )


def of_files(name: str, content: bytes) -> tuple[PlannedData, Read]:
    store = MemoryStore()
    store.write(f"memory://data/{name}", content)
    data = plan_sources("memory://data", ReaderOptions(), store)
    reader = Reader(store=store, sources=data.sources, schema=data.schema, index=data.indices.__getitem__)
    return data, reader.read


def parquet(rows: range) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"x": list(rows)}), file)
    return file.getvalue()


def of_reader(reader: object, data: PlannedData | None = None) -> tuple[PlannedData, Read]:
    data = data or plan_reader(checked(reader), SPEC, ReaderOptions(), stride=STRIDE)
    index = data.indices.__getitem__
    return data, CustomShardReader(checked(reader), sources=data.sources, schema=data.schema, index=index).read


def opened(kind: str) -> tuple[PlannedData, Read]:
    """A data set with the records 0 to 49, and what reads it."""
    rows = range(RECORDS)
    match kind:
        case "csv":
            return of_files("a.csv", b"x\n" + b"".join(b"%d\n" % row for row in rows))
        case "json":
            return of_files("a.jsonl", b"".join(json.dumps({"x": row}).encode() + b"\n" for row in rows))
        case "tfrecord":
            return of_files("a.tfrecord", b"".join(frame(b"%d" % row) for row in rows))
        case "parquet":
            return of_files("a.parquet", parquet(rows))
        case _:
            return of_reader(Numbers(as_bytes=kind == "bytes"))


KINDS = ("csv", "json", "tfrecord", "parquet", "dicts", "bytes")


@pytest.mark.parametrize("kind", KINDS)
@given(place=st.tuples(st.integers(0, RECORDS), st.integers(0, RECORDS)).map(sorted))
def test_a_range_is_exactly_its_records(kind: str, place: list[int]) -> None:
    data, read = opened(kind)
    assert [source.records for source in data.sources] == [RECORDS]
    start, end = place
    if start == end:
        return
    block = read(Shard(source=0, start=start, end=end))
    batch = block.take(range(end - start))
    if data.schema.columns:
        assert data.schema.metadata.column_types == ("int64",)
        assert batch.columns["x"].tolist() == list(range(start, end))
    else:
        assert block.lines == [b"%d" % row for row in range(start, end)]
    whole = read(Shard(source=0, start=0, end=RECORDS)).hashes
    assert batch.checksum == int(np.add.reduce(whole[start:end]))
    assert data.indices[0].total == int(np.add.reduce(whole))


@pytest.mark.parametrize("kind", KINDS)
def test_a_range_beyond_the_source_is_refused(kind: str) -> None:
    _, read = opened(kind)
    for start, end in ((-1, 3), (3, 3), (0, RECORDS + 1)):
        with pytest.raises(IndexError):
            read(Shard(source=0, start=start, end=end))


def test_dicts_have_the_hashes_of_the_same_json_lines() -> None:
    hashes = [record_hash(0, number, b'{"x": %d}' % number) for number in range(RECORDS)]
    for kind in ("json", "dicts"):
        assert opened(kind)[1](Shard(source=0, start=0, end=RECORDS)).hashes.tolist() == hashes


@pytest.mark.parametrize("as_bytes", [False, True])
def test_other_records_than_planned_are_refused(as_bytes: bool) -> None:
    data, _ = of_reader(Numbers(as_bytes=as_bytes))
    _, read = of_reader(Numbers(as_bytes=as_bytes, shift=1), data)
    for start, end in ((0, TASK), (STRIDE, 2 * STRIDE), (3, 3 + 2 * STRIDE), (48, RECORDS)):
        with pytest.raises(UserError, match=f"records {100 + start} to {99 + end} of shard 'numbers' are not those"):
            read(Shard(source=0, start=start, end=end))
    _, read = of_reader(Numbers(as_bytes=not as_bytes), data)
    with pytest.raises(UserError, match="are not those that the reader gave"):
        read(Shard(source=0, start=0, end=1))
