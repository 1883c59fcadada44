"""The points that TensorBoard shows of a job, from its event log. Pure.

Tags and steps of losses and metrics are those of Keras' TensorBoard callback: ``epoch_loss`` at the epoch, from 0, in
the runs ``train`` and ``validation``, and ``evaluation_loss_vs_iterations`` in ``validation``. Every other step is a
number of minibatches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from elasticdl.master.core import State
from elasticdl.master.core.evaluation.state import Evaluation, EvaluationPhase
from elasticdl.master.core.evolve import evolve
from elasticdl.master.core.training.staleness import StalenessTotals
from elasticdl.master.core.training.state import Training
from elasticdl.shared.messages.events import Event, LogRecord, TaskFinished, one_by_one
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.names import Purpose, Service
from elasticdl.views.history import EpochRow, read_history
from elasticdl.views.lost_time import goodput_of
from elasticdl.views.progress import records_of

SAMPLES = 200
"""About how many values of throughput, staleness and workers a job has."""

SAMPLE_S_MIN = 1.0
"""Least seconds between two samples: workers report short tasks together, so a shorter time has no meaningful rate."""


class Run(StrEnum):
    """A subfolder of the log directory, as Keras names it."""

    TRAIN = "train"
    VALIDATION = "validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of one curve.

    Attributes:
        step: its place on the horizontal axis.
        time_s: when it was reached, by the event log, seconds since 1970.
        value: may be NaN.
    """

    run: Run
    tag: str
    step: int
    time_s: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """Sums at one moment; throughput and staleness are those between two samples.

    Attributes:
        working_s: seconds since 1970 without the pauses between runs.
        batches, records: those that workers have reported, each once.
    """

    working_s: float
    batches: int = 0
    records: int = 0
    staleness: tuple[int, int] = (0, 0)
    """Sum of the staleness, and how many batches it is of."""


def points(records: Iterable[LogRecord]) -> Iterator[Point]:
    """The points of a job, in the order in which its log made them known.

    The points of a part of the log, from its beginning, are the first ones of the whole log.
    """
    curves = FoldedCurves()
    for record in records:
        yield from curves.on_record(record)


class FoldedCurves:
    """Folds a log, in its own order, and finds what each record adds to the curves."""

    def __init__(self) -> None:
        self._state = State()
        self._curves = Curves()

    def on_record(self, record: LogRecord) -> Iterator[Point]:
        """Fold the next record, and find its points."""
        evolve(self._state, record)
        return self._curves.after(self._state, record)


class Curves:
    """Finds what each record of a log adds to the curves, once the state has it."""

    def __init__(self) -> None:
        self._last_evaluation = 0
        """Number of the last evaluation that has ended and was looked at."""
        self._epochs: set[int] = set()
        """Epochs, from 0, that have their points."""
        self._open: set[int] = set()
        self._known_epochs = 0
        """Of the epochs of the statistics, those without their points, and how many of them were looked at."""
        self._lost_logs = 0
        self._lost_rows: dict[int, tuple[float, EpochRow]] = {}
        """Epochs, from 0, of which the lost part of the log had more: time of the resume, and what was known."""
        self._lost_batches: int | None = 0
        """Batches that only the lost part of the log had reported; None: unknown until a task is finished."""
        self._last: _Sample | None = None

    def after(self, state: State, record: LogRecord) -> Iterator[Point]:
        """The points of a record, the last one that was applied to the state."""
        event = record.envelope.event
        for time_s, lost in state.lost_logs[self._lost_logs :]:
            self._lost_logs += 1
            self._lost_batches = None
            self._lost_rows |= {row["epoch"] - 1: (time_s, row) for row in read_history(lost.history)}
        if state.training is None:
            return
        yield from self._lost_epochs(state.training)
        is_merge = isinstance(event, TaskFinished) and event.task.purpose is Purpose.MERGE
        if is_merge or state.is_final:
            yield from self._finished_epochs(state, state.training)
        yield from self._ended_evaluations(state)
        yield from self._progress(event, state, state.training)

    def _lost_epochs(self, training: Training) -> Iterator[Point]:
        """Epochs that only the history file knows, because the log has lost them; their times are not known.

        An epoch that was in progress waits for its end.
        """
        for epoch, (time_s, row) in list(self._lost_rows.items()):
            was_complete = row["batches"] >= training.plan.batches_per_epoch
            has_more = epoch in training.epochs and training.epochs[epoch].batches > 0
            if was_complete or (training.has_epoch(epoch) and not has_more):
                del self._lost_rows[epoch]
                if epoch not in self._epochs:
                    self._epochs.add(epoch)
                    yield from _lost_epoch(row, epoch, time_s)

    def _finished_epochs(self, state: State, training: Training) -> Iterator[Point]:
        """Epochs whose tasks are complete and whose metrics are computed, or that the end of the job left without."""
        # New ones are at the end of the dictionary. To look at all of them each time would take ever longer.
        self._open.update(islice(reversed(training.epochs), len(training.epochs) - self._known_epochs))
        self._known_epochs = len(training.epochs)
        self._open -= self._epochs
        for epoch in sorted(self._open):
            totals = training.epochs[epoch]
            known = totals.batches > 0 and (totals.merged or state.is_final)
            if not known or not training.has_epoch(epoch):
                continue
            self._epochs.add(epoch)
            _, lost = self._lost_rows.pop(epoch, (0.0, None))
            if lost and lost["batches"] > totals.batches:
                yield from _lost_epoch(lost, epoch, totals.ended_s)
                continue
            values = {**totals.results, "loss": totals.loss}
            rate = state.callbacks.rate_of(epoch)
            if rate is not None:
                values["learning_rate"] = rate
            yield from _of_epoch(Run.TRAIN, epoch, totals.ended_s, values)

    def _ended_evaluations(self, state: State) -> Iterator[Point]:
        if not state.evaluations or state.evaluations[-1].number == self._last_evaluation:
            return  # Nearly always.
        for evaluation in state.evaluations:
            if evaluation.number <= self._last_evaluation:
                continue
            if evaluation.phase not in (EvaluationPhase.DONE, EvaluationPhase.ABANDONED):
                return
            self._last_evaluation = evaluation.number
            if evaluation.phase is EvaluationPhase.DONE:
                yield from _of_evaluation(evaluation)

    def _progress(self, event: Event, state: State, training: Training) -> Iterator[Point]:
        useful = goodput_of(event) if isinstance(event, RunMeasured) else None
        if useful is not None and self._lost_batches is not None:
            yield _now(state, "goodput", self._lost_batches + training.statistics.batches, useful)
        if not _finishes_training(event):
            return
        if self._lost_batches is None:
            self._lost_batches = max(0, _absorbed(training) - training.statistics.batches)
            self._last = _sample(state, training, self._lost_batches + training.statistics.batches)
            return
        last = self._last or _Sample(working_s=state.first_step_s - state.paused_s)
        if state.now_s - state.paused_s < last.working_s + SAMPLE_S_MIN:
            return
        batches = self._lost_batches + training.statistics.batches
        if batches - last.batches < max(1, state.plan.batches // SAMPLES):
            return
        self._last = new = _sample(state, training, batches)
        rate = (new.records - last.records) / (new.working_s - last.working_s)
        yield _now(state, "records_per_second", batches, rate)
        yield _now(state, "workers", batches, len(state.running(Service.WORKER)))
        if pushed := new.staleness[1] - last.staleness[1]:
            yield _now(state, "staleness", batches, (new.staleness[0] - last.staleness[0]) / pushed)


def _sample(state: State, training: Training, batches: int) -> _Sample:
    staleness = StalenessTotals.of_all(training.statistics.staleness.values())
    return _Sample(
        working_s=state.now_s - state.paused_s,
        batches=batches,
        records=records_of(state),
        staleness=(staleness.updates, staleness.count),
    )


def _now(state: State, tag: str, step: int, value: float) -> Point:
    return Point(run=Run.TRAIN, tag=tag, step=step, time_s=state.now_s, value=value)


def _absorbed(training: Training) -> int:
    """About how many batches the tasks have that every ps is credited with; exact for whole epochs."""
    plan = training.plan
    return round(len(training.complete) * plan.batches_per_epoch / plan.tasks_per_epoch)


def _of_epoch(run: Run, epoch: int, time_s: float, values: Mapping[str, float]) -> Iterator[Point]:
    for name, value in sorted(values.items()):
        yield Point(run=run, tag=f"epoch_{name}", step=epoch, time_s=time_s, value=value)


def _of_evaluation(evaluation: Evaluation) -> Iterator[Point]:
    for name, value in sorted(evaluation.results.items()):
        tag = f"evaluation_{name}_vs_iterations"
        yield Point(run=Run.VALIDATION, tag=tag, step=evaluation.step, time_s=evaluation.ended_s, value=value)
    if evaluation.is_epoch_end:
        yield from _of_epoch(Run.VALIDATION, evaluation.epoch, evaluation.ended_s, evaluation.results)


def _lost_epoch(row: EpochRow, epoch: int, time_s: float) -> Iterator[Point]:
    yield from _of_epoch(Run.TRAIN, epoch, time_s, _numbers({**row["metrics"], "loss": row["loss"]}))
    yield from _of_epoch(Run.VALIDATION, epoch, time_s, _numbers(row["validation"]))


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    """With NaN again for None, which stands for it in JSON."""
    return {name: math.nan if value is None else value for name, value in values.items()}


def _finishes_training(event: Event) -> bool:
    """Whether an event says that training tasks are finished."""
    return any(isinstance(one, TaskFinished) and one.task.purpose is Purpose.TRAIN for one in one_by_one(event))
