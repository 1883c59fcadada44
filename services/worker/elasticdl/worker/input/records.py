"""The records of a task's batches, read by the plan."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elasticdl.shared.data import FORMATS, RawBatch, RecordBlock, order
from elasticdl.shared.data.blocks import ColumnBatch
from elasticdl.shared.data.ragged import Columns
from elasticdl.shared.data.schema import DataSchema
from elasticdl.shared.job.permutation import derive_key
from elasticdl.shared.job.plan import Plan, Shard
from elasticdl.shared.names import TaskId
from elasticdl.shared.storage import scheme_of

_FEED_SEED = 4
"""Distinguishes the seeds of feeds from those of the plan's permutations and of steps."""
_TASKS_KEPT = 2
"""The current task and the one before, so that a task that goes back is not read again."""

Expand = Callable[[ColumnBatch, int, int], Columns]
"""(columns, epoch, seed) -> the columns that the feed gets, of any number of records."""


class ShardReader(Protocol):
    """Reads the shards of a plan: ``Reader`` those of files, ``CustomShardReader`` through the user's reader."""

    @property
    def schema(self) -> DataSchema:
        """How the data is read."""
        ...

    def prefetch(self, shards: Sequence[Shard]) -> None:
        """Begin to read shards, and return at once; any thread may call."""
        ...

    def read(self, shard: Shard) -> RecordBlock:
        """The records of a shard; raises a UserError if they are not those that the job was planned with."""
        ...

    def read_all(self, shards: Sequence[Shard]) -> RecordBlock:
        """The records of several shards, at least one, one after the other; raises as ``read`` does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecords:
    """The raw records of one batch.

    Attributes:
        records: what the user's feed gets: raw records, or columns by name.
        seed: determines the random numbers of the user's feed.
        places: place of each record in its task's shards, one after the other, in the batch's order.
        kept: typed columns that the feed need not give, see ``TaskRecords``.
    """

    records: Any
    count: int
    checksum: int
    seed: int = 0
    places: range | npt.NDArray[np.int64]
    kept: Columns = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A task's records.

    Attributes:
        block: the records of its shards, one after the other.
        places: int64, place of each record in the block, in the plan's order.
    """

    block: RecordBlock
    places: range | npt.NDArray[np.int64]


class TaskRecords:
    """Reads batches of one plan; for one thread.

    Args:
        reader: reads the plan's sources and verifies that they have not changed.
        whole_batches: the user's feed takes a whole batch (``feed_batch``): it gets typed columns where there are any.
        keep_columns: columns that a prediction job copies from the data.
        expand: makes what the feed gets from the columns of the data, for one batch; None: they are the same.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        reader: ShardReader,
        whole_batches: bool,
        keep_columns: tuple[str, ...] = (),
        expand: Expand | None = None,
    ) -> None:
        self.plan = plan
        self._reader = reader
        self._columns = whole_batches and FORMATS[reader.schema.format].has_columns
        self._keep_columns = keep_columns
        self._expand = expand
        self._tasks: OrderedDict[TaskId, _Task] = OrderedDict()
        is_users = reader.schema.reader is not None
        self.are_remote = not is_users and any(scheme_of(source.uri) != "file" for source in plan.sources)
        """Whether they are in object storage: its client gives up by itself. The user's reader may do anything."""

    def switch_to(self, plan: Plan, reader: ShardReader) -> None:
        """Read another plan from now on, of data with the same columns."""
        self.plan, self._reader = plan, reader
        self._tasks.clear()

    def prefetch(self, task: TaskId) -> None:
        """Begin to read the records of a task, and return at once; any thread may call."""
        self._reader.prefetch(self.plan.shards(task))

    def batch(self, task: TaskId, batch: int) -> BatchRecords:
        """The records of a batch, in the plan's order.

        Raises:
            UserError: the source changed since the job was planned, or its data is corrupt; names the record.
        """
        ordered = self._ordered(task)
        start = batch * self.plan.minibatch_size
        stop = start + self.plan.records_of(task, batch)
        if not 0 <= start < stop:
            raise IndexError(f"task {task} has no batch {batch}")
        places = ordered.places[start:stop]
        raw = ordered.block.take(places)
        seed = derive_key(self.plan.seed, _FEED_SEED, task, batch)
        return BatchRecords(
            records=self._fed(raw, task, seed),
            count=raw.count,
            checksum=raw.checksum,
            seed=seed,
            places=places,
            kept={name: raw.columns[name] for name in self._keep_columns},
        )

    def one(self, task: TaskId, place: int) -> Any:
        """A single record, as a batch of one; for finding the one that the user's feed can't take."""
        ordered = self._ordered(task)
        return self._fed(ordered.block.take((place,)), task, 0)

    def located(self, task: TaskId, place: int) -> tuple[str, int]:
        """Where a record is: URI of its source, and its number in it."""
        for shard in self.plan.shards(task):
            if place < shard.records:
                return self.plan.sources[shard.source].uri, shard.start + place
            place -= shard.records
        raise IndexError(f"task {task} has no record at place {place} behind its last shard")

    def _fed(self, raw: RawBatch, task: TaskId, seed: int) -> Any:
        if self._expand is not None:
            return self._expand(raw.columns, self.plan.epoch(task), seed)
        return raw.columns if self._columns else raw.records

    def _ordered(self, task: TaskId) -> _Task:
        """A task's records and their order, read at its first batch."""
        ordered = self._tasks.get(task)
        if ordered is None:
            block = self._reader.read_all(self.plan.shards(task))
            places = order.take(self.plan.record_order(task), 0, len(block.hashes))
            ordered = self._tasks[task] = _Task(block=block, places=places)
            while len(self._tasks) > _TASKS_KEPT:
                self._tasks.popitem(last=False)
        return ordered
