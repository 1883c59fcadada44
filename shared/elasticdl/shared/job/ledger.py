"""The ledger: exactly which batches a group of model state has absorbed.

Only ledgers decide what is trained; queues, leases and acknowledgements only make it fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.names import TaskId
from elasticdl.shared.proto.fields import Uint64

_MASK64 = (1 << 64) - 1


class Verdict(Enum):
    """A ledger's answer to a batch that a worker pushes."""

    APPLIED = "applied"
    """It is the next expected batch."""
    DUPLICATE = "duplicate"
    """It was absorbed before: success, nothing to apply."""
    GAP = "gap"
    """An earlier batch of the task is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """A ledger as an immutable value, for snapshots, events and messages.

    Attributes:
        finished: ranges ``[start, end)`` of finished task ids, sorted and disjoint.
        open: next expected batch of every task that is begun and not finished.
        step: batches absorbed, empty ones included.
        checksum: sum over absorbed records of their 64-bit hash, modulo 2**64.
    """

    finished: tuple[tuple[int, int], ...] = ()
    open: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    step: int = 0
    records: int = 0
    checksum: Uint64 = 0


class Ledger:
    """The mutable ledger of one group."""

    __slots__ = ("_finished", "_open", "checksum", "records", "step")

    def __init__(self, record: LedgerRecord | None = None) -> None:
        record = record or LedgerRecord()
        self._finished = RangeSet(record.finished)
        self._open = dict(sorted(record.open.items()))
        self.step = record.step
        self.records = record.records
        self.checksum = record.checksum

    def __eq__(self, other: object) -> bool:
        return self.record() == other.record() if isinstance(other, Ledger) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # mutable

    def next_batch(self, task: TaskId, batches: int) -> int:
        """The next batch to absorb of a task that has ``batches``; equal to ``batches`` once it is finished."""
        return batches if task in self._finished else self._open.get(task, 0)

    def judge(self, task: TaskId, batch: int, batches: int) -> Verdict:
        """The answer that ``absorb`` would give; changes nothing."""
        expected = self.next_batch(task, batches)
        if batch == expected:
            return Verdict.APPLIED
        return Verdict.DUPLICATE if batch < expected else Verdict.GAP

    def absorb(self, task: TaskId, batch: int, batches: int, records: int, checksum: int) -> Verdict:
        """Record a batch; only ``APPLIED`` changes the ledger.

        Args:
            batch: number of the batch within the task, from 0.
            checksum: sum of their hashes modulo 2**64.
        """
        verdict = self.judge(task, batch, batches)
        if verdict is not Verdict.APPLIED:
            return verdict
        if batch + 1 == batches:
            self._open.pop(task, None)
            self._finished.add(task)
        else:
            self._open[task] = batch + 1
        self.step += 1
        self.records += records
        self.checksum = (self.checksum + checksum) & _MASK64
        return verdict

    def missing(self, tasks: int) -> Iterator[tuple[int, int]]:
        """Ranges of task ids of ``range(tasks)`` that are not finished."""
        return self._finished.gaps(0, tasks)

    def has_all(self, start: int, end: int) -> bool:
        """Whether all tasks of ``range(start, end)`` are finished."""
        return next(self._finished.gaps(start, end), None) is None

    def record(self) -> LedgerRecord:
        """The ledger as a value."""
        return LedgerRecord(
            finished=tuple(self._finished.ranges()),
            open=MappingProxyType(dict(sorted(self._open.items()))),
            step=self.step,
            records=self.records,
            checksum=self.checksum,
        )

    def copy(self) -> Ledger:
        """An independent copy; cheap, for cuts."""
        return Ledger(self.record())
