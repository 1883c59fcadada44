"""Batches of a task: the plan's records in the plan's order, whatever was read before."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticdl.shared.data import ReaderOptions
from elasticdl.shared.data.custom import CheckedReader, CustomShardReader, ReadTask, plan_reader
from elasticdl.shared.data.planning import plan_sources
from elasticdl.shared.data.reader import Reader
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.spec import ReaderSpec
from elasticdl.shared.names import TaskId
from elasticdl.shared.storage import open_store
from elasticdl.worker.input.records import TaskRecords

ROWS, BATCH = 50, 4


class Rows:
    """A reader of a model file: rows 0 to 49."""

    def create_shards(self) -> list[tuple[str, int, int]]:
        return [("rows", 0, ROWS)]

    def read_records(self, task: ReadTask) -> list[dict[str, int]]:
        return [{"x": row} for row in range(task.shard.start, task.shard.end)]


def records_of_reader(shuffle: Shuffle) -> TaskRecords:
    custom = CheckedReader(Rows, function="rows", path=Path("m.py"), guard=lambda _: contextlib.nullcontext())
    spec = ReaderSpec(function="rows", origin="", records_per_task=3 * BATCH)
    data = plan_reader(custom, spec, ReaderOptions(), stride=BATCH)
    plan = Plan(sources=data.sources, minibatch_size=BATCH, minibatches_per_task=3, epochs=2, shuffle=shuffle, seed=5)
    reader = CustomShardReader(custom, sources=data.sources, schema=data.schema, index=data.indices.__getitem__)
    return TaskRecords(plan=plan, reader=reader, whole_batches=True)


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
        order, first = plan.record_order(task), plan.shard(task).start
        expected = [first + order[p] for p in range(batch * BATCH, batch * BATCH + plan.records_of(task, batch))]
        assert found.records["x"].tolist() == found.numbers == expected
        assert found.count == len(expected)
        alone = records.one(task, expected[-1])["x"].tolist()
        assert alone == [expected[-1]]
        seen += expected
    assert sorted(seen) == sorted([*range(ROWS), *range(ROWS)])


def test_the_checksums_of_a_tasks_batches_add_up_to_the_index(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": list(range(ROWS))}), tmp_path / "a.parquet")
    records = records_of(tmp_path, Shuffle.RECORDS)
    assert isinstance(records._reader, Reader)
    plan = records.plan
    for task in range(plan.tasks_per_epoch):
        batches = [records.batch(TaskId(task), batch) for batch in range(plan.batches_of(TaskId(task)))]
        total = sum(batch.checksum for batch in batches) % 2**64
        assert total == records._reader.checksum(plan.shard(TaskId(task)))


def test_a_batch_beyond_the_task_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": list(range(ROWS))}), tmp_path / "a.parquet")
    with pytest.raises(IndexError, match="has no batch 3"):
        records_of(tmp_path, Shuffle.TASKS).batch(TaskId(0), 3)
