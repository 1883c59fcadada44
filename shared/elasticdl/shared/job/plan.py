"""The plan: the training tasks, a pure function of the job's settings and its recorded sources.

    work left = the plan - the ledgers

Nothing here depends on a clock, a file or the order of events.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate, islice

from elasticdl.shared.errors import check_range
from elasticdl.shared.job.global_order import GlobalOrder, block_records
from elasticdl.shared.job.permutation import Permutation, derive_key
from elasticdl.shared.job.sources import PackedSources
from elasticdl.shared.job.sources import Source as Source
from elasticdl.shared.names import TaskId
from elasticdl.shared.proto.fields import Uint64

BATCH_SIZE_MAX = 1 << 20
EPOCHS_MAX = 1 << 31
_RECENT_SHARDS_MAX = 256
"""Tasks whose shards a plan remembers: more than a page of the dashboard shows."""
_HASHED_TOGETHER = 1000
"""Sources that are hashed together for the fingerprint."""
_RECENT_ORDERS_MAX = 4
"""Epochs whose orders of shards a plan remembers."""


class Shuffle(Enum):
    """How the seed reorders the data; in each mode the records of a batch are always the same."""

    NONE = "none"
    """Sources in order, records in order."""
    TASKS = "tasks"
    """The order of tasks changes each epoch, records stay in file order inside a task (sequential reads)."""
    RECORDS = "records"
    """Tasks as above, and the records inside each task are permuted, differently each epoch."""
    GLOBAL = "global"
    """Blocks of records are permuted over the whole data set, and the records inside each task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Records ``[start, end)`` of source number ``source``."""

    source: int
    start: int
    end: int

    @property
    def records(self) -> int:
        """How many records the shard has."""
        return self.end - self.start


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every training (or evaluation) task of a job.

    Attributes:
        sources: the data set, in planning order; very many are packed.
        epochs: passes over the data.
        shuffle: what the seed reorders.
        max_step: batches after which the plan ends (0: no limit).
    """

    sources: Sequence[Source]
    minibatch_size: int
    minibatches_per_task: int
    epochs: int
    shuffle: Shuffle
    seed: Uint64
    max_step: int = 0

    def __post_init__(self) -> None:
        for flag, value, low, high in (
            ("--minibatch_size", self.minibatch_size, 1, BATCH_SIZE_MAX),
            ("--num_minibatches_per_task", self.minibatches_per_task, 1, 1 << 20),
            ("--num_epochs", self.epochs, 1, EPOCHS_MAX),
            ("--max_step", self.max_step, 0, 1 << 62),
        ):
            check_range(flag, value, low, high)
        object.__setattr__(self, "sources", Source.sequence_of(self.sources))

    @cached_property
    def _records(self) -> Sequence[int]:
        """The number of records of each source."""
        if isinstance(self.sources, PackedSources):
            return self.sources.records
        return [source.records for source in self.sources]

    @cached_property
    def task_records(self) -> int:
        """Records of a full task."""
        return self.minibatch_size * self.minibatches_per_task

    @cached_property
    def records_per_epoch(self) -> int:
        """Records of one pass over the data, before any truncation."""
        return sum(self._records)

    @cached_property
    def _first_shard(self) -> array[int]:
        """Number of shards before source ``i``; one more entry holds the total."""
        return array("q", accumulate((-(-records // self.task_records) for records in self._records), initial=0))

    @cached_property
    def _first_record(self) -> array[int]:
        """Number of records before source ``i``; one more entry holds the total."""
        return array("q", accumulate(self._records, initial=0))

    @cached_property
    def is_global(self) -> bool:
        """Whether a task has records of several ranges and sources."""
        return self.shuffle is Shuffle.GLOBAL

    @cached_property
    def tasks_per_epoch(self) -> int:
        """Tasks of one pass over the data, before any truncation."""
        return -(-self.records_per_epoch // self.task_records) if self.is_global else self._first_shard[-1]

    @property
    def counts_batches(self) -> bool:
        """Whether a record is a batch, as in the data of a script that workers read by the numbers of its batches."""
        return self.minibatch_size == 1

    @cached_property
    def batches_per_epoch(self) -> int:
        """Batches of one pass over the data: a task's last batch may be short, so this is a sum over shards."""
        if self.is_global:
            return -(-self.records_per_epoch // self.minibatch_size)
        full, total = self.task_records, 0
        for records in self._records:
            tail = records % full
            total += records // full * self.minibatches_per_task + -(-tail // self.minibatch_size)
        return total

    @cached_property
    def _truncation(self) -> tuple[int, int]:
        """(number of tasks, batches of the last one; 0 = whole) after ``max_step``."""
        whole = self.tasks_per_epoch * self.epochs
        if self.max_step == 0 or self.batches_per_epoch == 0 or self.max_step >= self.batches_per_epoch * self.epochs:
            return whole, 0
        epoch, left = divmod(self.max_step, self.batches_per_epoch)
        task = epoch * self.tasks_per_epoch
        while left > 0:
            batches = -(-self._whole_records(task) // self.minibatch_size)
            task += 1
            if batches > left:
                return task, left
            left -= batches
        return task, 0

    @cached_property
    def tasks(self) -> int:
        """Number of tasks; ids are ``range(tasks)``."""
        return self._truncation[0]

    @cached_property
    def is_truncated(self) -> bool:
        """Whether ``max_step`` ends it before the end of its last epoch."""
        return self._truncation != (self.tasks_per_epoch * self.epochs, 0)

    def defines(self, task: int) -> bool:
        """Whether a task has records: each one of the plan, and those of later epochs, which a resume may add."""
        if task < self.tasks:
            return task >= 0
        return not self.is_truncated and task < self.tasks_per_epoch * EPOCHS_MAX

    @property
    def epochs_run(self) -> int:
        """Passes over the data that are begun, after truncation; 0 without records."""
        return -(-self.tasks // self.tasks_per_epoch) if self.tasks else 0

    @cached_property
    def batches(self) -> int:
        """Batches over all epochs, after truncation."""
        whole = self.batches_per_epoch * self.epochs
        return min(whole, self.max_step) if self.max_step else whole

    @cached_property
    def records(self) -> int:
        """Records over all epochs, after truncation."""
        if self.tasks == 0:
            return 0
        whole = self.tasks - (self._truncation[1] > 0)  # The last task may be shorter.
        epochs = whole // self.tasks_per_epoch
        rest = range(epochs * self.tasks_per_epoch, self.tasks)
        return epochs * self.records_per_epoch + sum(self.task_size(TaskId(task)) for task in rest)

    def epoch(self, task: TaskId) -> int:
        """The pass over the data, from 0, that a task belongs to."""
        return task // self.tasks_per_epoch

    def task_size(self, task: TaskId) -> int:
        """Number of records of a task that the plan ``defines``."""
        records = self._recent_sizes.get(task)
        if records is None:
            if not self.defines(task):
                raise IndexError(f"task {task} is not in the plan of {self.tasks} tasks")
            records, last_batches = self._whole_records(task), self._truncation[1]
            if task == self.tasks - 1 and last_batches:
                records = min(records, last_batches * self.minibatch_size)
            if len(self._recent_sizes) >= _RECENT_SHARDS_MAX:
                self._recent_sizes.clear()
            self._recent_sizes[task] = records
        return records

    @cached_property
    def _recent_sizes(self) -> dict[int, int]:
        """``task_size`` by task: every batch asks several times for that of its task."""
        return {}

    def shards(self, task: TaskId) -> tuple[Shard, ...]:
        """The records of a task that the plan ``defines``: one range, or with a global shuffle several, ascending."""
        records = self.task_size(task)
        shards = self._recent_shards.get(task)
        if shards is None:
            if len(self._recent_shards) >= _RECENT_SHARDS_MAX:
                self._recent_shards.clear()
            shards = self._recent_shards[task] = self._compute_shards(task, records)
        return shards

    @cached_property
    def _recent_shards(self) -> dict[int, tuple[Shard, ...]]:
        """Shards by task: every batch asks several times for those of its task."""
        return {}

    def _whole_records(self, task: int) -> int:
        """Records of a task, before any truncation."""
        if self.is_global:
            return min(self.task_records, self.records_per_epoch - task % self.tasks_per_epoch * self.task_records)
        source, start = self._begin(task)
        return min(self.task_records, self._records[source] - start)

    def _compute_shards(self, task: int, records: int) -> tuple[Shard, ...]:
        if not self.is_global:
            source, start = self._begin(task)
            return (Shard(source=source, start=start, end=start + records),)
        epoch, position = divmod(task, self.tasks_per_epoch)
        first = position * self.task_records
        ranges = self._global_order(epoch).ranges(first, first + records)
        return tuple(Shard(source=source, start=start, end=end) for source, start, end in ranges)

    def _begin(self, task: int) -> tuple[int, int]:
        """Source and first record of a task that has one range."""
        begin = self._recent_begins.get(task)
        if begin is None:
            if len(self._recent_begins) >= _RECENT_SHARDS_MAX:
                self._recent_begins.clear()
            epoch, position = divmod(task, self.tasks_per_epoch)
            number = self._order(epoch)[position] if self.shuffle is not Shuffle.NONE else position
            source = bisect_right(self._first_shard, number) - 1
            begin = self._recent_begins[task] = source, (number - self._first_shard[source]) * self.task_records
        return begin

    @cached_property
    def _recent_begins(self) -> dict[int, tuple[int, int]]:
        """``_begin`` by task: every batch asks several times for the size of its task."""
        return {}

    def _global_order(self, epoch: int) -> GlobalOrder:
        return GlobalOrder(self._first_record, block_records(self.task_records), self.seed, epoch)

    def _order(self, epoch: int) -> Permutation:
        order = self._recent_orders.get(epoch)
        if order is None:
            if len(self._recent_orders) >= _RECENT_ORDERS_MAX:
                self._recent_orders.clear()
            order = self._recent_orders[epoch] = Permutation(self.tasks_per_epoch, derive_key(self.seed, 1, epoch))
        return order

    @cached_property
    def _recent_orders(self) -> dict[int, Permutation]:
        """Order of the shards by epoch: tasks of one or two epochs run at a time."""
        return {}

    def batches_of(self, task: TaskId) -> int:
        """Number of batches of a task (>= 1)."""
        return -(-self.task_size(task) // self.minibatch_size)

    def records_of(self, task: TaskId, batch: int) -> int:
        """Number of records of one batch."""
        left = self.task_size(task) - batch * self.minibatch_size
        return min(left, self.minibatch_size)

    def record_order(self, task: TaskId) -> Permutation | range:
        """Order of the task's records: their places in its shards, one after the other, batch after batch."""
        records = self.task_size(task)
        if self.shuffle in (Shuffle.RECORDS, Shuffle.GLOBAL):
            return Permutation(records, derive_key(self.seed, 2, task))
        return range(records)

    def task_ids(self) -> Iterator[TaskId]:
        """All task ids in planning order."""
        return (TaskId(task) for task in range(self.tasks))

    @cached_property
    def fingerprint(self) -> str:
        """A digest (16 hex digits) of everything that determines the records of a batch."""
        facts = _facts(self) | {"shuffle": self.shuffle.value}
        if self.is_global:
            facts["block_records"] = block_records(self.task_records)
        # As JSON of all with sorted keys, of which the sources are the last; a million at once would take 400 MB.
        del facts["sources"]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True)[:-1].encode() + b', "sources": [')
        rest, separator = map(_facts, self.sources), b""
        while some := list(islice(rest, _HASHED_TOGETHER)):
            digest.update(separator + json.dumps(some, sort_keys=True)[1:-1].encode())
            separator = b", "
        digest.update(b"]}")
        return digest.hexdigest()[:16]


def _facts(value: Plan | Source) -> dict[str, object]:
    """Its fields by name; ``dataclasses.asdict`` takes five times as long."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
