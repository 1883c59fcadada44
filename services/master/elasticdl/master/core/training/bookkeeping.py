"""Training bookkeeping: what was dispatched, what every ps is credited with, what is missing."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.job.tasks import MetricStates
from elasticdl.shared.messages.events import TaskFinished, TaskReturned
from elasticdl.shared.names import NOBODY, Incarnation, PodName, TaskId

MetricSums = dict[str, tuple[list[float], ...]]
"""As ``MetricStates``, as numbers."""

WINDOW_TASKS_MIN = 64
TASKS_EACH_MIN = 8
"""Tasks for each worker, at least."""
WINDOW_TASKS_MAX = 16_384
AGAIN_TASKS_MAX = 1024
"""Tasks that one decision dispatches again, each as a range of its own."""


@dataclass(slots=True, kw_only=True)
class Credit:
    """What a ps is believed to have absorbed: whole tasks, under one incarnation.

    Attributes:
        incarnation: whose word it is; empty while the ps is away.
        finished: task numbers that each of its groups has finished.
    """

    incarnation: Incarnation = NOBODY
    finished: RangeSet = field(default_factory=RangeSet)


@dataclass(slots=True, kw_only=True)
class Share:
    """What is known of some batches of one task: sums, which can't be taken apart.

    Attributes:
        batches: their numbers in the task.
        records: of all of them.
        loss_sum: sum over them of the mean loss of a batch.
        states: metric states over them.
    """

    batches: RangeSet = field(default_factory=RangeSet)
    records: int = 0
    loss_sum: float = 0.0
    states: MetricSums = field(default_factory=dict)

    def add(self, other: Share) -> None:
        """Add what is known of other batches."""
        for start, end in other.batches.ranges():
            self.batches.add_range(start, end)
        self.records += other.records
        self.loss_sum += other.loss_sum
        add_states(self.states, other.states)


@dataclass(slots=True, kw_only=True)
class EpochTotals:
    """Sums over those batches of one epoch whose loss and metrics are known, each once.

    A worker that is killed takes what it knew with it.
    """

    tasks: int = 0
    records: int = 0
    batches: int = 0
    loss_sum: float = 0.0
    states: MetricSums = field(default_factory=dict)
    started_s: float = 0.0
    ended_s: float = 0.0
    results: dict[str, float] = field(default_factory=dict)
    merged: bool = False

    @property
    def loss(self) -> float:
        """Mean over records, as Keras' loss metric has it, once the metrics are there; over batches until then."""
        if "loss" in self.results:
            return self.results["loss"]
        return self.loss_sum / self.batches if self.batches else float("nan")

    def add(self, share: Share, sign: int = 1) -> None:
        """Add what is known of some batches, or with ``sign`` -1 take it back."""
        self.records += sign * share.records
        self.batches += sign * len(share.batches)
        self.loss_sum += sign * share.loss_sum
        if not self.merged:
            add_states(self.states, share.states, sign)


@dataclass(slots=True)
class Training:
    """The training tasks of a plan against the credits of the ps.

    Attributes:
        plan: the training plan.
        frontier: tasks below this number were dispatched at least once.
        outstanding: dispatched and not complete: a message about them is in the queue or in somebody's hands.
        lacking: dispatched before, not complete, and no message about them is left: to be dispatched again.
        complete: credited to every ps.
        finished: somebody has finished them, whether or not every ps still has them.
        credits: what each ps is believed to have.
        counted: tasks that a worker has finished, having computed something of them.
        partial: what is known of tasks of which some batches are not known; it is in ``epochs``, too.
        known: tasks of which every batch is in ``epochs``.
        epochs: sums per epoch.
        speculated: tasks of which a second attempt was dispatched.
        seconds: where the workers' time went, summed.
    """

    plan: Plan
    frontier: int = 0
    outstanding: set[int] = field(default_factory=set)
    lacking: set[int] = field(default_factory=set)
    complete: RangeSet = field(default_factory=RangeSet)
    finished: RangeSet = field(default_factory=RangeSet)
    credits: dict[PodName, Credit] = field(default_factory=dict)
    counted: RangeSet = field(default_factory=RangeSet)
    partial: dict[int, Share] = field(default_factory=dict)
    known: RangeSet = field(default_factory=RangeSet)
    epochs: dict[int, EpochTotals] = field(default_factory=dict)
    speculated: set[int] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def mean_task_s(self) -> float:
        """Mean seconds of a finished task in a worker's hands; 0 before the first."""
        return self.seconds.get("total", 0.0) / len(self.counted) if self.counted else 0.0

    @property
    def is_complete(self) -> bool:
        """Whether every ps that there is has everything."""
        return len(self.complete) == self.plan.tasks

    @property
    def is_behind(self) -> bool:
        """Whether some ps lost what was finished once, and has not learned it again yet."""
        return len(self.finished.intersection(self.complete)) < len(self.finished)

    def has_epoch(self, epoch: int) -> bool:
        """Whether every task of an epoch is complete."""
        first, last = self.epoch_range(epoch)
        return not any(True for _ in self.complete.gaps(first, last))

    def epoch_range(self, epoch: int) -> tuple[int, int]:
        """Task numbers ``[first, last)`` of an epoch."""
        size = self.plan.tasks_per_epoch
        return epoch * size, min((epoch + 1) * size, self.plan.tasks)

    @property
    def epochs_complete(self) -> int:
        """How many epochs, from the first, are complete without a gap."""
        first_missing = self.complete.first_missing(0)
        if first_missing >= self.plan.tasks:
            return self.plan.epoch(TaskId(self.plan.tasks - 1)) + 1 if self.plan.tasks else 0
        return first_missing // self.plan.tasks_per_epoch

    @property
    def is_dispatched(self) -> bool:
        """Whether no task waits for its first dispatch."""
        return not any(True for _ in self.complete.gaps(self.frontier, self.plan.tasks))

    def next_tasks(self, window: int) -> tuple[list[int], tuple[tuple[int, int], ...]]:
        """What to dispatch now: tasks again, and ranges for the first time, keeping about ``window`` outstanding.

        Tasks that are complete although nobody dispatched them, because the log was lost, are left out.
        """
        again = sorted(self.lacking)[:AGAIN_TASKS_MAX]
        room = window - len(self.outstanding) - len(again)
        ranges: list[tuple[int, int]] = []
        # Refill when a quarter is free, so that a decision holds many tasks.
        if room * 4 >= window:
            for start, end in self.complete.gaps(self.frontier, self.plan.tasks):
                ranges.append((start, min(end, start + room)))
                room -= end - start
                if room <= 0:
                    break
        return again, tuple(ranges)

    def note_dispatch(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Tasks are on their way to the queue."""
        for start, end in ranges:
            self.lacking.difference_update(range(start, end))
            self.speculated.update(task for task in range(start, end) if task in self.outstanding)
            self.outstanding.update(range(start, end))
            self.frontier = max(self.frontier, end)

    def note_ps(self, ps: PodName, incarnation: Incarnation, finished: RangeSet) -> None:
        """A ps serves with these ledgers: they replace whatever was credited to it."""
        self.credits[ps] = Credit(incarnation=incarnation, finished=finished)
        self._recompute()

    def note_move(
        self, donor: PodName, recipient: PodName, incarnation: Incarnation, held: RangeSet, *, is_last: bool
    ) -> None:
        """Partitions have come to another ps.

        Args:
            donor: whose they were.
            recipient: whose they are.
            incarnation: the recipient's present life; empty while it is away.
            held: tasks that all of the groups that have come have finished.
            is_last: the donor owns nothing any more.
        """
        credit = self.credits.setdefault(recipient, Credit(incarnation=incarnation, finished=held))
        credit.finished = credit.finished.intersection(held)
        if is_last:
            self.credits.pop(donor, None)
        self._recompute()

    def note_ps_gone(self, ps: PodName) -> None:
        """A ps is away: nothing can be credited to it until it says what it has."""
        if ps in self.credits:
            self.credits[ps].incarnation = NOBODY

    def note_queue_purged(self) -> None:
        """No task is on the queue any more."""
        self.outstanding.clear()
        self.speculated.clear()
        self._recompute()

    def note_finished(self, event: TaskFinished, time_s: float, placement_version: int) -> bool:
        """Credit a finished task; returns whether that made it complete for the first time.

        Args:
            event: who answered, and by which version of the placement. Who answered by an earlier one than the present
                may have spoken for groups that are elsewhere now.
            time_s: when.
            placement_version: the present version.
        """
        task = event.task.number
        self.finished.add(task)
        for ps, credit in self.credits.items() if event.placement_version == placement_version else ():
            if credit.incarnation and event.credits.get(ps) == credit.incarnation:
                credit.finished.add(task)
        was_complete = task in self.complete
        if all(task in credit.finished for credit in self.credits.values()) and self.credits:
            self.complete.add(task)
            self.outstanding.discard(task)
            self.lacking.discard(task)
            self.speculated.discard(task)
        elif task in self.outstanding:
            # It was acknowledged under an older incarnation of some ps or placement: nobody would do it again.
            self.outstanding.discard(task)
            self.lacking.add(task)
        for part, seconds in event.seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds
        self.count(event, time_s)
        return not was_complete and task in self.complete

    def forget(self, tasks: RangeSet) -> None:
        """The audit found these missing in a ledger: take their credit back."""
        for credit in self.credits.values():
            kept = RangeSet()
            for start, end in tasks.gaps(0, self.plan.tasks):
                kept.add_range(start, end)
            credit.finished = credit.finished.intersection(kept)
        self._recompute()

    def _recompute(self) -> None:
        complete: RangeSet | None = None
        for credit in self.credits.values():
            complete = credit.finished.copy() if complete is None else complete.intersection(credit.finished)
        self.complete = complete if complete is not None else RangeSet()
        self.outstanding = {task for task in self.outstanding if task not in self.complete}
        missing = (task for start, end in self.complete.gaps(0, self.frontier) for task in range(start, end))
        self.lacking = {task for task in missing if task not in self.outstanding}

    def note_pause(self, pause_s: float) -> None:
        """Nobody ran for so long: it does not count as time of the epochs that are under way."""
        for totals in self.epochs.values():
            if totals.tasks < self.plan.tasks_per_epoch:
                totals.started_s += pause_s

    def count(self, event: TaskFinished | TaskReturned, time_s: float) -> None:
        """Add what a worker has counted of a task to its epoch's sums, every batch at most once.

        Sums that share a batch with what is known can't be added; they take its place if they are of more batches.
        """
        task = TaskId(event.task.number)
        batches = self.plan.batches_of(task)
        share = _share(event, batches)
        if not share.batches:
            return
        totals = self.epochs.setdefault(self.plan.epoch(task), EpochTotals(started_s=time_s))
        if isinstance(event, TaskFinished) and task not in self.counted:
            self.counted.add(task)
            totals.tasks += 1
            totals.ended_s = time_s
        former = self.partial.get(task)
        if task in self.known or not all(0 <= batch < batches for batch in share.batches):
            return
        if former and former.batches.intersection(share.batches):
            if len(share.batches) <= len(former.batches):
                return
            totals.add(former, -1)
            former = None
        totals.add(share)
        totals.ended_s = max(totals.ended_s, totals.started_s)
        if former:
            former.add(share)
            share = former
        if len(share.batches) == batches:
            self.known.add(task)
            self.partial.pop(task, None)
        else:
            self.partial[task] = share


def _share(event: TaskFinished | TaskReturned, batches: int) -> Share:
    """What an event says of a task of so many batches."""
    counted = event.counted
    if isinstance(event, TaskFinished) and not counted:  # In an old log.
        counted = ((batches - event.batches, batches),)
    return Share(
        batches=RangeSet(counted), records=event.records, loss_sum=event.loss_sum, states=_numbers(event.states)
    )


def window_of(tasks_per_s: float, window_s: float, workers: int) -> int:
    """How many tasks to keep dispatched: ``window_s`` seconds of work, within limits.

    Args:
        tasks_per_s: tasks that all workers together finish in a second.
        window_s: seconds of work.
        workers: how many are wanted; each gets room for a few tasks, whatever their pace.
    """
    wanted = int(tasks_per_s * window_s)
    return max(WINDOW_TASKS_MIN, TASKS_EACH_MIN * workers, min(wanted, WINDOW_TASKS_MAX))


def add_states(total: MetricSums, states: MetricSums, sign: int = 1) -> None:
    """Add metric states to a running sum, in place, or with ``sign`` -1 take them from it."""
    for name, variables in states.items():
        if name not in total:
            total[name] = tuple([0.0] * len(variable) for variable in variables)
        for mine, theirs in zip(total[name], variables, strict=True):
            for index, value in enumerate(theirs):
                mine[index] += sign * value


def _numbers(states: MetricStates) -> MetricSums:
    return {name: tuple(array("d", variable).tolist() for variable in variables) for name, variables in states.items()}


def sum_states(many: Mapping[int, MetricStates]) -> MetricStates:
    """Sum metric states over tasks, in the order of their numbers, so that the sum has the same bits every time."""
    total: MetricSums = {}
    for number in sorted(many):
        add_states(total, _numbers(many[number]))
    return to_bytes(total)


def to_bytes(states: MetricSums) -> MetricStates:
    """Metric states as they travel."""
    return {name: tuple(array("d", variable).tobytes() for variable in variables) for name, variables in states.items()}
