"""Opens a job's data: the plan's sources with the schema and the indices that were recorded with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

from elasticdl.shared.data import IndexStore, Reader
from elasticdl.shared.data.blocks import ColumnBatch
from elasticdl.shared.data.custom import CheckedReader, CustomShardReader
from elasticdl.shared.data.schema import options_of, schema_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Plan, Shard
from elasticdl.shared.job.spec import DataSpec
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.shared.storage.cache import DataStores
from elasticdl.shared.storage.uris import scheme_of, to_uri
from elasticdl.worker.core.batch_clock import Work
from elasticdl.worker.failures import DataError
from elasticdl.worker.input.bad_record import feed_naming_records, may_be_about_a_record, name_computed
from elasticdl.worker.input.records import BatchRecords, Expand, ShardReader, TaskRecords
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.ports import FedBatch, Feeder
from elasticdl.worker.running_batches import RunningBatches

_EXAMPLES_MAX = 20
"""Batches that are tried for one whose records the user's feed does not all drop."""


def open_records(
    plan: Plan,
    data: DataSpec,
    storage: str,
    stores: DataStores,
    *,
    whole_batches: bool,
    keep_columns: tuple[str, ...] = (),
    custom: CheckedReader | None = None,
    expand: Expand | None = None,
) -> TaskRecords:
    """Readers of one plan, for one thread; see ``TaskRecords``."""
    reader = open_reader(plan, data, storage, stores, custom)
    return TaskRecords(plan=plan, reader=reader, whole_batches=whole_batches, keep_columns=keep_columns, expand=expand)


def open_reader(
    plan: Plan, data: DataSpec, storage: str, stores: DataStores, custom: CheckedReader | None = None
) -> ShardReader:
    """A reader of one plan's sources, for one thread."""
    indices = IndexStore.of_job(storage, plan.sources, options_of(data))
    if custom is not None:
        return CustomShardReader(custom, sources=plan.sources, schema=schema_of(data), index=indices.load)
    uri = plan.sources[0].uri if plan.sources else storage
    store = stores.open(uri)
    # Local files are not read ahead, even if other data of the job is in object storage.
    reads_ahead = stores.reads_ahead and scheme_of(to_uri(uri)) != "file"
    return Reader(
        store=store,
        sources=plan.sources,
        schema=schema_of(data),
        index=indices.load,
        is_same=lambda number, now: indices.is_same(number, data, now),
        prefetch=stores.prefetch if reads_ahead else None,
    )


def all_columns(plan: Plan, reader: ShardReader) -> Iterator[ColumnBatch]:
    """The columns of all records of a plan once, in the order of the data."""
    for number, source in enumerate(plan.sources):
        for start in range(0, source.records, plan.task_records):
            end = min(start + plan.task_records, source.records)
            yield reader.read(Shard(source=number, start=start, end=end)).columns


def first_batch(records: TaskRecords, feeder: Feeder, running_batches: RunningBatches) -> FedBatch:
    """A batch to build the model with: the plan's first one that the user's feed does not drop whole.

    Args:
        running_batches: records the batch meanwhile: reading and feeding may crash the process.

    Raises:
        DataError: the data changed since the job was planned, or is corrupt.
        UserError: the first batches are all dropped, or the feed raises; names the record.
        UserCodeError: the reader of the model file raised.
    """
    return _first_batch(records, feeder, running_batches)[2]


def name_in_first_batch(
    error: UserError,
    records: TaskRecords,
    feeder: Feeder,
    running_batches: RunningBatches,
    compute: Callable[[FedBatch], object],
) -> UserError:
    """The error of computing the first batch, with the record that it is about; see ``name_computed``."""
    if not may_be_about_a_record(error):
        return error
    task, raw, _ = _first_batch(records, feeder, running_batches)
    return name_computed(error, feeder, records, task, raw, compute)


def _first_batch(
    records: TaskRecords, feeder: Feeder, running_batches: RunningBatches
) -> tuple[TaskId, BatchRecords, FedBatch]:
    plan = records.plan
    tasks = map(TaskId, plan.task_ids())
    places = ((task, batch) for task in tasks for batch in range(plan.batches_of(task)))
    for _, (task, batch) in zip(range(_EXAMPLES_MAX), places, strict=False):
        with running_batches.running(TaskRef(purpose=Purpose.TRAIN, number=task), batch, Work.READ):
            try:
                with running_batches.waiting() if records.are_remote else nullcontext():
                    raw = records.batch(task, batch)
            except UserCodeError:
                raise
            except UserError as error:
                raise DataError(str(error)) from error
            fed, _ = feed_naming_records(feeder, records, task, raw, lambda _: None)
        if fed is not None:
            return task, raw, fed
    raise UserError(
        f"feed drops every record of the first {_EXAMPLES_MAX} batches",
        hint="The model is built from the first batch that is not empty. Check the filter in feed().",
    )
