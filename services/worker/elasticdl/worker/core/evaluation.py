"""One evaluation or prediction task: batch k is computed on weights that do not change while batch k + 1 is read."""

from __future__ import annotations

from collections import deque

from elasticdl.shared.job.plan import Plan
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.worker.core.batch_order import BatchRef
from elasticdl.worker.core.commands import (
    DiscardMetrics,
    EvaluateBatch,
    PredictBatch,
    PullBatch,
    ReadBatch,
    ReleaseBatch,
)
from elasticdl.worker.core.effects import Effects
from elasticdl.worker.core.events import BatchComputed, BatchFailed, BatchPulled, BatchRead, BatchUnreadable
from elasticdl.worker.core.tally import Tally
from elasticdl.worker.core.tasks.leased import LeasedTask

ReadResult = BatchRead | BatchFailed | BatchUnreadable


class Evaluation:
    """Evaluates or predicts the batches of one task in order."""

    def __init__(self, effects: Effects, plan: Plan, lease: LeasedTask) -> None:
        self.plan = plan
        self.pin = lease.message.evaluation
        """The evaluation whose pinned weights are read; 0: a prediction job, whose weights do not change."""
        self.entry = lease.number
        """Distinguishes this attempt from others of the same task."""
        self.tally = Tally()
        self.computing: BatchRef | None = None
        """The batch that the main thread works on."""
        self.failed_read: BatchFailed | BatchUnreadable | None = None
        """Why the next batch could not be read; every earlier one is computed."""
        self._effects = effects
        self._task = lease.message.task
        self._batches = plan.batches_of(self.plan_task)
        self._next_to_read = 0
        self._read: deque[ReadResult] = deque()
        self._current: BatchRead | None = None

    @property
    def plan_task(self) -> TaskId:
        """The plan's task: every evaluation repeats the plan's tasks under new numbers."""
        return TaskId(self._task.number % self.plan.tasks)

    @property
    def is_done(self) -> bool:
        """Whether every batch is computed."""
        return self.tally.batches == self._batches

    def start(self) -> None:
        """Read the first batch; an evaluation starts with metrics at zero."""
        if self._task.purpose is Purpose.EVALUATE:
            self._effects.issue(DiscardMetrics(task=self._task))
        self._read_next()

    def on_read(self, event: ReadResult) -> None:
        """A batch was read, or could not be read."""
        self._read.append(event)
        self._advance()

    def on_pulled(self, event: BatchPulled) -> None:
        """The pinned weights for the current batch arrived."""
        self.tally.add_seconds(event.seconds)
        self._compute(event.ref)

    def on_computed(self, event: BatchComputed) -> None:
        """The current batch is computed."""
        self.computing = None
        if self._current is not None:
            self._count(self._current, event.loss or 0.0)
            self.tally.add_seconds(event.seconds)
        self._advance()

    def release(self) -> None:
        """Drop the data of all batches; late results of other batches are dropped by ``AuxiliaryTasks``."""
        batches = [*self._read, *([self._current] if self._current else [])]
        for read in batches:
            self._effects.issue(ReleaseBatch(ref=read.ref))

    def _advance(self) -> None:
        """Begin the next batch that is read; empty ones are only counted."""
        while self._current is None and self._read:
            read = self._read.popleft()
            if not isinstance(read, BatchRead):
                self.failed_read = read
                return
            self._current = read
            self._read_next()
            self.tally.add_seconds(read.seconds)
            if not read.is_empty:
                self._effects.issue(PullBatch(ref=read.ref, pin=self.pin))
                return
            self._count(read, 0.0)

    def _compute(self, ref: BatchRef) -> None:
        self.computing = ref
        predicts = self._task.purpose is Purpose.PREDICT
        self._effects.issue(PredictBatch(ref=ref) if predicts else EvaluateBatch(ref=ref))

    def _count(self, read: BatchRead, loss: float) -> None:
        self.tally.add_batch(read.ref.batch, records=read.records, loss=loss)
        self.tally.checksum = (self.tally.checksum + read.checksum) % (1 << 64)
        self._effects.issue(ReleaseBatch(ref=read.ref))
        self._current = None

    def _read_next(self) -> None:
        if self._next_to_read < self._batches:
            ref = BatchRef(task=self._task, batch=self._next_to_read, entry=self.entry)
            self._next_to_read += 1
            self._effects.issue(ReadBatch(ref=ref))
