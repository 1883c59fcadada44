"""The records of a task's batches, read by the plan."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from elasticdl.shared.data import RawBatch, Reader, RecordBlock, order
from elasticdl.shared.data.schema import DataFormat
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.names import TaskId

_BLOCKS_KEPT = 2
"""The task that is read and the one before: a task that has to go back is not read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecords:
    """The raw records of one batch.

    Attributes:
        records: what the user's feed gets: raw records, or columns by name.
        count: number of records.
        checksum: sum of their hashes modulo 2**64.
        numbers: number of each in its source, in the batch's order.
    """

    records: Any
    count: int
    checksum: int
    numbers: list[int]


class TaskRecords:
    """Reads batches of one plan; for one thread.

    Args:
        plan: which records a batch holds.
        reader: reads the plan's sources and verifies that they have not changed.
        whole_batches: the user's feed takes a whole batch (``feed_batch``): it gets typed columns where there are any.
    """

    def __init__(self, *, plan: Plan, reader: Reader, whole_batches: bool) -> None:
        self.plan = plan
        self._reader = reader
        self._columns = whole_batches and reader.schema.format is not DataFormat.TFRECORD
        self._blocks: OrderedDict[TaskId, RecordBlock] = OrderedDict()

    def batch(self, task: TaskId, batch: int) -> BatchRecords:
        """The records of a batch, in the plan's order.

        Raises:
            UserError: the source changed since the job was planned, or its data is corrupt; names the record.
            TransientError: storage is away.
        """
        block = self._block(task)
        start = batch * self.plan.minibatch_size
        stop = start + self.plan.records_of(task, batch)
        offsets = order.take(self.plan.record_order(task), start, stop)
        raw = block.take(offsets)
        return BatchRecords(
            records=self._fed(raw),
            count=raw.count,
            checksum=raw.checksum,
            numbers=[block.shard.start + int(offset) for offset in offsets],
        )

    def one(self, task: TaskId, number: int) -> Any:
        """A single record, as a batch of one; for finding the one that the user's feed can't take.

        Args:
            task: the task.
            number: number of the record in its source.
        """
        block = self._block(task)
        return self._fed(block.take([number - block.shard.start]))

    def source_uri(self, task: TaskId) -> str:
        """The data object that a task reads."""
        return self.plan.sources[self.plan.shard(task).source].uri

    def _fed(self, raw: RawBatch) -> Any:
        return raw.columns if self._columns else raw.records

    def _block(self, task: TaskId) -> RecordBlock:
        block = self._blocks.get(task)
        if block is None:
            block = self._blocks[task] = self._reader.read(self.plan.shard(task))
            while len(self._blocks) > _BLOCKS_KEPT:
                self._blocks.popitem(last=False)
        return block
