"""What the workers report about their training tasks, for progress, and the metrics of the epochs.

The reports of a worker that is killed are lost, so their sums are an estimate. The metrics of a complete epoch are
exact: a worker computes them from the sums that the ps keep (ADR 14).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import add

from elasticdl.master.core.evaluation.state import UnneededStates
from elasticdl.master.core.training.staleness import StalenessTotals
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.events import Envelope, TaskFinished, TaskReturned
from elasticdl.shared.messages.times import PARTS, us_of
from elasticdl.shared.names import PodName, TaskId


@dataclass(slots=True, kw_only=True)
class EpochTotals:
    """One epoch: sums over batches that workers reported, each once; all absorbed batches once it is ``merged``.

    Attributes:
        loss_sum: sum of the mean loss of a batch over those that workers reported.
        reported: how many batches those are.
        started_s: when the first report arrived.
        ended_s: when the last one arrived.
        merged: whether a worker has computed the results.
    """

    tasks: int = 0
    records: int = 0
    batches: int = 0
    loss_sum: float = 0.0
    reported: int = 0
    started_s: float = 0.0
    ended_s: float = 0.0
    results: dict[str, float] = field(default_factory=dict)
    merged: bool = False

    @property
    def loss(self) -> float:
        """Mean over records, as in Keras, once the metrics are merged; the mean over reported batches until then."""
        if "loss" in self.results:
            return self.results["loss"]
        return self.loss_sum / self.reported if self.reported else float("nan")

    def merge(self, event: TaskFinished) -> None:
        """Take over the metrics that a worker has computed, and of what they are."""
        self.results, self.merged = dict(event.results), True
        self.batches, self.records = event.batches, event.records


@dataclass(slots=True, kw_only=True)
class TrainingStatistics:
    """What the workers reported about their training tasks.

    Attributes:
        counted: tasks that a worker has finished, having computed something of them.
        partial: task -> its reported batches, while some are missing.
        known: tasks of which every batch was reported.
        batches, records: sums over ``epochs``, of which a job can have tens of thousands.
        merged_epochs: how many epochs, from the first, have their results.
        spent_us: the workers' time in microseconds, summed, in the order of ``times.PARTS``.
        staleness: of the batches that each worker pushed, repeated ones too.
        overflows: batches that were absorbed without gradients, because these overflowed float16, repeated ones too.
        unneeded: stored metric states of evaluations that nothing needs any more.
    """

    counted: RangeSet = field(default_factory=RangeSet)
    partial: dict[int, RangeSet] = field(default_factory=dict)
    known: RangeSet = field(default_factory=RangeSet)
    epochs: dict[int, EpochTotals] = field(default_factory=dict)
    batches: int = 0
    records: int = 0
    merged_epochs: int = 0
    spent_us: tuple[int, ...] = (0,) * len(PARTS)
    staleness: dict[PodName, StalenessTotals] = field(default_factory=dict)
    overflows: int = 0
    unneeded: UnneededStates = field(default_factory=UnneededStates)

    @property
    def seconds(self) -> Mapping[str, float]:
        """The workers' time by part (``read``, ``pull``, ``compute``, ...), and their sum as ``total``, in seconds."""
        present = {part: us / 1e6 for part, us in zip(PARTS, self.spent_us, strict=True) if us}
        return {**present, "total": sum(self.spent_us) / 1e6} if present else present

    @property
    def mean_task_s(self) -> float:
        """Mean seconds from taking a task to finishing it; 0 before the first."""
        return sum(self.spent_us) / 1e6 / len(self.counted) if self.counted else 0.0

    def add(self, event: TaskFinished | TaskReturned, envelope: Envelope, plan: Plan) -> None:
        """Add a worker's report on a task to its epoch, each batch at most once.

        A report that shares a batch with earlier ones can't be divided: it is left out.
        """
        staleness = self.staleness.get(envelope.name)
        if staleness is None:
            staleness = self.staleness[envelope.name] = StalenessTotals()
        staleness.add(event.staleness)
        self.overflows += event.overflows
        is_finished = isinstance(event, TaskFinished)
        if isinstance(event, TaskFinished):
            staleness.add_times(event.times)
            self.spent_us = tuple(map(add, self.spent_us, us_of(event.times)))
        task = TaskId(event.task.number)
        batches = plan.batches_of(task)
        reported = None if event.counted == ((0, batches),) else RangeSet(event.counted)
        if reported is not None and not reported:
            return
        number = plan.epoch(task)
        epoch = self.epochs.get(number)
        if epoch is None:
            epoch = self.epochs[number] = EpochTotals(started_s=envelope.time_s)
        if is_finished and self.counted.add(task):
            epoch.tasks += 1
            epoch.ended_s = envelope.time_s
        new = self._new_batches(task, batches, reported)
        if not new:
            return
        epoch.loss_sum += event.loss_sum
        epoch.reported += new
        if not epoch.merged:
            epoch.batches += new
            epoch.records += event.records
            self.batches += new
            self.records += event.records
        epoch.ended_s = max(epoch.ended_s, epoch.started_s)

    def _new_batches(self, task: TaskId, batches: int, reported: RangeSet | None) -> int:
        """Note the reported batches of a task (None: all); how many, 0 if one was known or does not exist."""
        known = self.partial.get(task)
        if reported is None:
            return batches if known is None and self.known.add(task) else 0
        if task in self.known:
            return 0
        if (known is not None and known.intersection(reported)) or not reported.is_within(0, batches):
            return 0
        known = reported if known is None else known.union(reported)
        if len(known) == batches:
            self.known.add(task)
            self.partial.pop(task, None)
        else:
            self.partial[task] = known
        return len(reported)

    def merge(self, number: int, event: TaskFinished, time_s: float, plan: Plan) -> None:
        """Take over the metrics of an epoch; nothing may have been reported of it, if its workers were killed."""
        epoch = self.epochs.setdefault(number, EpochTotals(started_s=time_s, ended_s=time_s))
        self.batches += event.batches - epoch.batches
        self.records += event.records - epoch.records
        epoch.merge(event)
        first = number * plan.tasks_per_epoch
        self.counted.add_range(first, min(first + plan.tasks_per_epoch, plan.tasks))
        while (following := self.epochs.get(self.merged_epochs)) and following.merged:
            self.merged_epochs += 1

    def exclude_pause(self, pause_s: float, tasks_per_epoch: int) -> None:
        """Leave a pause between two runs out of the duration of unfinished epochs."""
        for epoch in self.epochs.values():
            if not epoch.merged and epoch.tasks < tasks_per_epoch:  # Reports of a merged one may be lost.
                epoch.started_s += pause_s
