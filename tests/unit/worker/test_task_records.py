"""Batches of a task: the plan's records in the plan's order, whatever was read before."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticdl.shared.data import IndexStore, ReaderOptions
from elasticdl.shared.data.custom import CheckedReader, CustomShardReader, ReadTask, plan_reader
from elasticdl.shared.data.planning import plan_sources
from elasticdl.shared.data.reader import Reader
from elasticdl.shared.data.schema import options_of, spec_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Plan, Shard, Shuffle
from elasticdl.shared.job.spec import ReaderSpec
from elasticdl.shared.names import TaskId
from elasticdl.shared.storage import open_store
from elasticdl.shared.storage.cache import DataCacheSettings, DataStores, StoredRange
from elasticdl.worker.input.job_data import open_reader
from elasticdl.worker.input.records import TaskRecords

ROWS, BATCH = 50, 4


class Rows:
    """A reader of a model file: rows 0 to 49."""

    def create_shards(self) -> list[tuple[str, int, int]]:
        return [("rows", 0, ROWS)]

    def read_records(self, task: ReadTask) -> list[dict[str, int]]:
        return [{"x": row} for row in range(task.shard.start, task.shard.end)]


TYPES = pa.schema({"x": pa.int64(), "name": pa.string(), "items": pa.list_(pa.int64())})


def records_of_reader(shuffle: Shuffle) -> TaskRecords:
    custom = CheckedReader(Rows, function="rows", path=Path("m.py"), guard=lambda _: contextlib.nullcontext())
    spec = ReaderSpec(function="rows", origin="", records_per_task=3 * BATCH)
    data = plan_reader(custom, spec, ReaderOptions(), stride=BATCH)
    plan = Plan(sources=data.sources, minibatch_size=BATCH, minibatches_per_task=3, epochs=2, shuffle=shuffle, seed=5)
    reader = CustomShardReader(custom, sources=data.sources, schema=data.schema, index=data.indices.__getitem__)
    return TaskRecords(plan=plan, reader=reader, whole_batches=True)


def test_local_data_is_not_read_ahead_beside_data_in_object_storage(tmp_path: Path) -> None:
    asked: list[StoredRange] = []

    class Stores(DataStores):
        """Other data of the job is in object storage."""

        @property
        def reads_ahead(self) -> bool:
            return True

        def prefetch(self, ranges: Iterable[StoredRange]) -> None:
            asked.extend(ranges)

    (tmp_path / "data.csv").write_text("x\n" + "1\n" * ROWS)
    data = plan_sources(tmp_path.as_uri(), ReaderOptions(), open_store(tmp_path.as_uri()))
    storage = (tmp_path / "storage").as_uri()
    spec = spec_of(data.schema, csv_header=True)
    IndexStore.of_job(storage, data.sources, options_of(spec)).save(data.indices)
    sources, unshuffled = data.sources, Shuffle.NONE
    plan = Plan(sources=sources, minibatch_size=BATCH, minibatches_per_task=3, epochs=1, shuffle=unshuffled, seed=0)
    stores = Stores(DataCacheSettings(folder=tmp_path / "cache", bytes_max=0))
    reader = open_reader(plan, spec, storage, stores)
    reader.prefetch(plan.shards(TaskId(0)))
    assert asked == []


def records_of(folder: Path, shuffle: Shuffle) -> TaskRecords:
    """Rows 0 to 49 of a Parquet file, or lines of a CSV file, as batches of 4 in tasks of 12."""
    uri = folder.as_uri()
    store = open_store(uri)
    data = plan_sources(uri, ReaderOptions(), store)
    plan = Plan(sources=data.sources, minibatch_size=BATCH, minibatches_per_task=3, epochs=2, shuffle=shuffle, seed=5)
    reader = Reader(store=store, sources=data.sources, schema=data.schema, index=lambda number: data.indices[number])
    return TaskRecords(plan=plan, reader=reader, whole_batches=True)


@pytest.mark.parametrize("shuffle", list(Shuffle))
@pytest.mark.parametrize("kind", ["parquet", "csv", "reader"])
def test_a_batch_has_the_records_that_the_plan_says(tmp_path: Path, kind: str, shuffle: Shuffle) -> None:
    if kind == "parquet":
        pq.write_table(pa.table({"x": list(range(ROWS))}), tmp_path / "a.parquet")
    else:
        (tmp_path / "a.csv").write_text("x\n" + "".join(f"{row}\n" for row in range(ROWS)))
    records = records_of_reader(shuffle) if kind == "reader" else records_of(tmp_path, shuffle)
    plan = records.plan
    places = [(TaskId(task), batch) for task in plan.task_ids() for batch in range(plan.batches_of(TaskId(task)))]
    np.random.default_rng(1).shuffle(places)
    seen = []
    for task, batch in places:
        found = records.batch(task, batch)
        order = plan.record_order(task)
        rows = [row for shard in plan.shards(task) for row in range(shard.start, shard.end)]
        expected = [rows[order[p]] for p in range(batch * BATCH, batch * BATCH + plan.records_of(task, batch))]
        assert found.records["x"].tolist() == expected
        assert [records.located(task, place)[1] for place in list(map(int, found.places))] == expected
        assert found.count == len(expected)
        alone = records.one(task, list(map(int, found.places))[-1])["x"].tolist()
        assert alone == [expected[-1]]
        seen += expected
    assert sorted(seen) == sorted([*range(ROWS), *range(ROWS)])


@pytest.mark.parametrize("shuffle", [Shuffle.RECORDS, Shuffle.GLOBAL])
def test_the_checksums_of_a_tasks_batches_add_up_to_the_index(tmp_path: Path, shuffle: Shuffle) -> None:
    pq.write_table(pa.table({"x": list(range(ROWS))}), tmp_path / "a.parquet")
    records = records_of(tmp_path, shuffle)
    assert isinstance(records._reader, Reader)
    plan = records.plan
    for task in range(plan.tasks_per_epoch):
        batches = [records.batch(TaskId(task), batch) for batch in range(plan.batches_of(TaskId(task)))]
        total = sum(batch.checksum for batch in batches) % 2**64
        assert total == sum(map(records._reader.checksum, plan.shards(TaskId(task)))) % 2**64


def test_a_batch_beyond_the_task_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": list(range(ROWS))}), tmp_path / "a.parquet")
    with pytest.raises(IndexError, match="has no batch 3"):
        records_of(tmp_path, Shuffle.TASKS).batch(TaskId(0), 3)


def test_a_task_of_several_files(tmp_path: Path) -> None:
    """Columns of every kind, and lines, of a task whose records are in many files."""
    for number in range(9):
        values = [10 * number + place for place in range(number)]
        table = {"x": values, "name": [str(x) for x in values], "items": [[x] * (x % 3) for x in values]}
        pq.write_table(pa.table(table, TYPES), tmp_path / f"{number}.parquet")
    records = records_of(tmp_path, Shuffle.GLOBAL)
    plan = records.plan
    assert [len(plan.shards(task)) > 2 for task in plan.task_ids()] == [True] * plan.tasks
    seen = []
    for task in plan.task_ids():
        for batch in range(plan.batches_of(task)):
            found = records.batch(task, batch)
            rows = found.records["x"].tolist()
            assert found.records["name"].tolist() == [str(x) for x in rows]
            assert found.records["items"].tolist() == [[x] * (x % 3) for x in rows]
            places = [records.located(task, place) for place in list(map(int, found.places))]
            assert [(int(uri.rpartition("/")[2][0]), number) for uri, number in places] == [divmod(x, 10) for x in rows]
            seen += rows
    rows = [10 * number + place for number in range(9) for place in range(number)]
    assert sorted(seen[: len(rows)]) == sorted(seen[len(rows) :]) == rows
    assert seen[: len(rows)] != seen[len(rows) :]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_file_that_was_changed_in_place_is_named(tmp_path: Path, kind: str) -> None:
    """Several files are read together, and size and time are those of the planning."""
    for number in range(6):
        rows = [10 * number + place for place in range(5)]
        text = "".join(f"{x}\n" if kind == "csv" else f'{{"x": {x}}}\n' for x in rows)
        (tmp_path / f"{number}.{kind}").write_text("x\n" * (kind == "csv") + text)
    records = records_of(tmp_path, Shuffle.GLOBAL)
    reader = records._reader
    assert isinstance(reader, Reader)
    shards = [Shard(source=number, start=1, end=4) for number in (1, 4)]
    block = reader.read_all(shards)
    assert block.columns["x"].tolist() == [11, 12, 13, 41, 42, 43]
    assert block.take(range(6)).checksum == sum(map(reader.checksum, shards)) % 2**64
    wrong = tmp_path / f"4.{kind}"
    before = wrong.stat()
    with wrong.open("r+") as file:
        file.write(wrong.read_text().replace("42", "43"))
    os.utime(wrong, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UserError, match=rf"4\.{kind} changed since the job was planned"):
        reader.read_all(shards)
    with pytest.raises(UserError, match=rf"4\.{kind} changed since the job was planned"):
        reader.read(Shard(source=4, start=4, end=5))
