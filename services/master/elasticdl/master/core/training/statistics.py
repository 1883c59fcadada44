"""Losses, metric states and times of training, each batch counted at most once per epoch."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from elasticdl.master.core.training.staleness import StalenessTotals
from elasticdl.master.core.training.stored_states import EpochStates, UnneededStates
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.job.tasks import MetricStates
from elasticdl.shared.messages.events import Envelope, TaskFinished, TaskReturned
from elasticdl.shared.names import Incarnation, PodName, TaskId

MetricSums = dict[str, tuple[list[float], ...]]
"""Metric states (see ``MetricStates``) as numbers."""


@dataclass(slots=True, kw_only=True)
class BatchTotals:
    """Sums over some batches of one task. A sum can't be divided among its batches again.

    Attributes:
        batches: numbers of the batches in the task.
        records: records in all of them.
        loss_sum: sum over them of the mean loss of a batch.
        states: sums of their metric states, if these are small.
        stored: numbers of their stored metric states.
    """

    batches: RangeSet = field(default_factory=RangeSet)
    records: int = 0
    loss_sum: float = 0.0
    states: MetricSums = field(default_factory=dict)
    stored: tuple[int, ...] = ()

    def add(self, other: BatchTotals) -> None:
        """Add the sums over other batches of the task."""
        for start, end in other.batches.ranges():
            self.batches.add_range(start, end)
        self.records += other.records
        self.loss_sum += other.loss_sum
        add_states(self.states, other.states)
        self.stored += other.stored


@dataclass(slots=True, kw_only=True)
class EpochTotals:
    """Sums over those batches of one epoch whose loss and metrics are known, each once.

    The statistics of a worker that is killed are lost, so the sums may cover fewer batches than were absorbed.

    Attributes:
        tasks: finished tasks.
        records: records in the known batches.
        batches: how many batches are known.
        loss_sum: sum over them of the mean loss of a batch.
        states: sums of their metric states, until they are merged, if these are small.
        stored: numbers of their stored metric states, until they are merged.
        started_s: when the first statistics arrived.
        ended_s: when the last ones arrived.
        results: metric name -> value, once merged.
        merged: whether a worker has computed the results.
        is_merging: whether a worker was asked to compute the results, and has not done so yet.
    """

    tasks: int = 0
    records: int = 0
    batches: int = 0
    loss_sum: float = 0.0
    states: MetricSums = field(default_factory=dict)
    stored: EpochStates = field(default_factory=EpochStates)
    started_s: float = 0.0
    ended_s: float = 0.0
    results: dict[str, float] = field(default_factory=dict)
    merged: bool = False
    is_merging: bool = False

    @property
    def awaits_merge(self) -> bool:
        """Whether there are metric states from which a worker has not computed the results yet."""
        return not self.merged and bool(self.states or self.stored)

    @property
    def loss(self) -> float:
        """Mean over records, as in Keras, once the metrics are merged; the mean over batches until then."""
        if "loss" in self.results:
            return self.results["loss"]
        return self.loss_sum / self.batches if self.batches else float("nan")

    def add(self, totals: BatchTotals, sign: int = 1) -> None:
        """Add the sums over some batches, or subtract them with ``sign`` -1."""
        self.records += sign * totals.records
        self.batches += sign * len(totals.batches)
        self.loss_sum += sign * totals.loss_sum
        if not self.merged:
            add_states(self.states, totals.states, sign)


@dataclass(slots=True, kw_only=True)
class TrainingStatistics:
    """What the workers reported about their training tasks.

    Attributes:
        counted: tasks that a worker has finished, having computed something of them.
        partial: sums over tasks of which some batches are unknown; they are in ``epochs``, too.
        known: tasks of which every batch is in ``epochs``.
        epochs: sums per epoch.
        seconds: the workers' time by part (``read``, ``pull``, ``compute``, ...), summed, seconds.
        staleness: of the batches that each worker pushed, repeated ones too.
        overflows: batches that were absorbed without gradients, because these overflowed float16, repeated ones too.
        repeating: processes whose next metric states contain those of a task that is known already.
        unneeded: stored metric states, also of evaluations, that nothing needs any more.
    """

    counted: RangeSet = field(default_factory=RangeSet)
    partial: dict[int, BatchTotals] = field(default_factory=dict)
    known: RangeSet = field(default_factory=RangeSet)
    epochs: dict[int, EpochTotals] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    staleness: dict[PodName, StalenessTotals] = field(default_factory=dict)
    overflows: int = 0
    repeating: set[Incarnation] = field(default_factory=set)
    unneeded: UnneededStates = field(default_factory=UnneededStates)

    @property
    def mean_task_s(self) -> float:
        """Mean seconds from taking a task to finishing it; 0 before the first."""
        return self.seconds.get("total", 0.0) / len(self.counted) if self.counted else 0.0

    def add(self, event: TaskFinished | TaskReturned, envelope: Envelope, plan: Plan) -> None:
        """Add a worker's statistics of a task to its epoch, each batch at most once.

        Sums that share a batch with those that are known can't be added. They replace them if they cover more batches.
        """
        staleness = self.staleness.setdefault(envelope.name, StalenessTotals())
        staleness.add(event.staleness)
        self.overflows += event.overflows
        if isinstance(event, TaskFinished):
            spent = event.seconds_by_part
            staleness.add_seconds(spent)
            for part, seconds in spent.items():
                self.seconds[part] = self.seconds.get(part, 0.0) + seconds
        task = TaskId(event.task.number)
        batches = plan.batches_of(task)
        is_repeated = task in self.known
        is_new = self._has_new_states(event, envelope.incarnation, is_repeated)
        reported = _totals_of(event, batches, is_new)
        if not is_new:
            self.unneeded.add(event.stored_states)
        if not reported.batches:
            return
        epoch = self.epochs.setdefault(plan.epoch(task), EpochTotals(started_s=envelope.time_s))
        if isinstance(event, TaskFinished) and task not in self.counted:
            self.counted.add(task)
            epoch.tasks += 1
            epoch.ended_s = envelope.time_s
        if is_repeated or not all(0 <= batch < batches for batch in reported.batches):
            self.unneeded.add(reported.stored)
            return
        self._add_to_epoch(epoch, task, reported, batches)
        epoch.ended_s = max(epoch.ended_s, epoch.started_s)

    def _add_to_epoch(self, epoch: EpochTotals, task: TaskId, reported: BatchTotals, batches: int) -> None:
        """Add the sums over batches of a task that is not known as a whole, or have them replace smaller ones."""
        former = self.partial.get(task)
        if former and former.batches.intersection(reported.batches):
            # A worker is reading the states of an epoch that is being merged: they must not be removed.
            if epoch.is_merging or len(reported.batches) <= len(former.batches):
                self.unneeded.add(reported.stored)
                return
            epoch.add(former, -1)
            epoch.stored.discard_partial(former.stored)
            self.unneeded.add(former.stored)
            former = None
        epoch.add(reported)
        if epoch.merged:
            self.unneeded.add(reported.stored)
        else:
            epoch.stored.add(reported.stored, is_partial=True)
        if former:
            former.add(reported)
            reported = former
        if len(reported.batches) == batches:
            self.known.add(task)
            self.partial.pop(task, None)
            if not epoch.merged:
                epoch.stored.complete_partial(reported.stored)
        else:
            self.partial[task] = reported

    def _has_new_states(self, event: TaskFinished | TaskReturned, process: Incarnation, is_repeated: bool) -> bool:
        """Whether the metric states of an event are not a sum over several tasks of which one is known already."""
        if isinstance(event, TaskFinished) and event.states_follow:
            if is_repeated:
                self.repeating.add(process)
        elif process in self.repeating:
            self.repeating.discard(process)
            return False
        return True

    def exclude_pause(self, pause_s: float, tasks_per_epoch: int) -> None:
        """Leave a pause between two runs out of the duration of unfinished epochs."""
        for epoch in self.epochs.values():
            if epoch.tasks < tasks_per_epoch:
                epoch.started_s += pause_s


def _totals_of(event: TaskFinished | TaskReturned, batches: int, has_states: bool) -> BatchTotals:
    """A worker's statistics of a task of so many batches, with or without the event's states."""
    counted = event.counted
    if isinstance(event, TaskFinished) and not counted:  # In an old log.
        counted = ((batches - event.batches, batches),)
    return BatchTotals(
        batches=RangeSet(counted),
        records=event.records,
        loss_sum=event.loss_sum,
        states=to_numbers(event.states) if has_states else {},
        stored=event.stored_states if has_states else (),
    )


def add_states(total: MetricSums, states: MetricSums, sign: int = 1) -> None:
    """Add metric states to a running sum, in place, or subtract them with ``sign`` -1."""
    for name, variables in states.items():
        if name not in total:
            total[name] = tuple([0.0] * len(variable) for variable in variables)
        for mine, theirs in zip(total[name], variables, strict=True):
            for index, value in enumerate(theirs):
                mine[index] += sign * value


def to_bytes(states: MetricSums) -> MetricStates:
    """Metric states in the form in which messages carry them."""
    return {name: tuple(array("d", variable).tobytes() for variable in variables) for name, variables in states.items()}


def to_numbers(states: MetricStates) -> MetricSums:
    """Metric states from the form in which messages carry them."""
    return {name: tuple(array("d", variable).tolist() for variable in variables) for name, variables in states.items()}
