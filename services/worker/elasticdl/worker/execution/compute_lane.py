"""The compute lane, on the main thread: everything that runs the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.permutation import derive_key
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.tasks import MetricStates
from elasticdl.shared.messages.events import FailureKind
from elasticdl.shared.model.metric_states import add_parts, decode_states, encode_states
from elasticdl.shared.names import TaskId
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.wire.messages import NO_DOUBLES
from elasticdl.worker.core import BatchRef
from elasticdl.worker.core.batch_clock import Work
from elasticdl.worker.core.commands import (
    ComputeBatch,
    ComputeEpochMetrics,
    EvaluateBatch,
    ExportModel,
    MergeResult,
    MergeStates,
    RunCallbacks,
    SaveModel,
    SumStates,
)
from elasticdl.worker.core.events import BatchComputed, BatchFailed, PullDelayed
from elasticdl.worker.execution.batch_store import BatchStore, LoadedBatch
from elasticdl.worker.execution.input_lane import ComputeOne
from elasticdl.worker.execution.round_steps import RoundAbortedError, RoundSteps
from elasticdl.worker.failures import Failure, of_user_error
from elasticdl.worker.ports import StepResult, Trainee
from elasticdl.worker.ps_client import PushRequest
from elasticdl.worker.running_batches import RunningBatches

_log = get_logger()
_STEP_SEED = 3
"""Distinguishes the seeds of steps from those of the plan's permutations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSettings:
    """The job as the compute lane needs it.

    Attributes:
        rate_from_worker: the learning-rate schedule is user code, or callbacks set it, so every push carries the rate.
        round_steps: runs the steps of a model whose batches are normalised together; None: each batch is alone.
    """

    plan: Plan
    rate_from_worker: bool
    callbacks: Callable[[RunCallbacks], MergeResult]
    export: Callable[[ExportModel], None]
    save: Callable[[int, int], None]
    round_steps: RoundSteps | None = None


def step_seed(plan: Plan, task: TaskId, batch: int) -> int:
    """What dropout and other random numbers of a batch follow from, whichever worker computes it."""
    return derive_key(plan.seed, _STEP_SEED, task, batch)


class ComputeLane:
    """Runs training steps and evaluations."""

    def __init__(
        self,
        settings: ComputeSettings,
        model: Trainee,
        store: BatchStore,
        running_batches: RunningBatches,
        name_record: Callable[[BatchRef, UserError, ComputeOne], UserError],
    ) -> None:
        self._name_record = name_record
        self._settings = settings
        self._model = model
        self._store = store
        self._running_batches = running_batches

    # --- batches --------------------------------------------------------------------------------------------------

    def train(self, command: ComputeBatch) -> BatchComputed | BatchFailed | PullDelayed:
        """Compute the gradients of a batch and prepare its push."""
        ref, loaded = command.ref, self._store[command.ref]
        started_s = time.perf_counter()
        try:
            result = self._train(ref, loaded)
        except RoundAbortedError as error:
            _log.info("round can't be computed now", task=str(ref.task), batch=ref.batch, reason=str(error))
            loaded.drop_weights()
            return PullDelayed(ref=ref, seconds={"wait": time.perf_counter() - started_s})
        except UserError as error:
            return self._failed(ref, loaded, error, Work.TRAIN, self._model.train)
        seconds = time.perf_counter() - started_s
        if result is not None and result.overflow:
            _log.info("gradients overflowed, batch absorbed empty", task=str(ref.task), batch=ref.batch)
        elif result is not None and not result.finite:
            failure = Failure(kind=FailureKind.NOT_FINITE, message=result.problem)
            return BatchFailed(ref=ref, failure=failure, step=loaded.step)
        return self._computed(ref, loaded, result, seconds, command.learning_rate)

    def _train(self, ref: BatchRef, loaded: LoadedBatch) -> StepResult | None:
        """Loss and gradients; None for a batch without records or without weights."""
        if loaded.weights is None:
            return None
        task, steps = TaskId(ref.task.number), self._settings.round_steps
        if loaded.batch is None:
            if steps is not None:
                steps.contribute_nothing(task, ref.batch, loaded.weights)
            return None
        if steps is not None:
            return steps.train(task, ref.batch, loaded)
        seed = step_seed(self._settings.plan, task, ref.batch)
        with self._running_batches.running(ref.task, ref.batch, Work.TRAIN):
            return self._model.train(loaded.batch, loaded.weights.dense, loaded.rows(), step_seed=seed)

    def evaluate(self, command: EvaluateBatch) -> BatchComputed | BatchFailed:
        """Evaluate a batch."""
        ref, loaded = command.ref, self._store[command.ref]
        if loaded.weights is None:
            raise ValueError(f"{ref} has no weights")
        started_s = time.perf_counter()
        try:
            with self._running_batches.running(ref.task, ref.batch, Work.EVALUATE):
                seed = step_seed(self._settings.plan, TaskId(ref.task.number), ref.batch)
                loss = self._model.evaluate(loaded.batch, loaded.weights.dense, loaded.rows(), step_seed=seed)
        except UserError as error:
            return self._failed(ref, loaded, error, Work.EVALUATE, self._model.evaluate)
        return BatchComputed(ref=ref, loss=loss, seconds={"compute": time.perf_counter() - started_s})

    def _failed(
        self, ref: BatchRef, loaded: LoadedBatch, error: UserError, work: Work, run: Callable[..., object]
    ) -> BatchFailed:
        """A batch that the user's code can't take, with the record if it is about one."""
        dense = () if loaded.weights is None else loaded.weights.dense
        with self._running_batches.running(ref.task, ref.batch, work):
            named = self._name_record(
                ref, error, lambda fed, tables: run(fed, dense, loaded.rows_of(tables), step_seed=0)
            )
        return BatchFailed(ref=ref, failure=of_user_error(named, FailureKind.USER_CODE), step=loaded.step)

    def _computed(
        self,
        ref: BatchRef,
        loaded: LoadedBatch,
        result: StepResult | None,
        seconds: float,
        learning_rate: float | None = None,
    ) -> BatchComputed:
        """Prepare the push; an empty batch and one that overflowed are absorbed without gradients."""
        self._running_batches.count_batch()
        task = TaskId(ref.task.number)
        push = PushRequest(
            task=task,
            batch=ref.batch,
            batches=self._settings.plan.batches_of(task),
            records=loaded.records,
            checksum=loaded.checksum,
            dense_gradient=None,
            metric_states=NO_DOUBLES if result is None else result.metric_states,
        )
        if result is None or result.overflow or loaded.weights is None:
            # The forward pass has moved the layer state before the gradients overflowed.
            has_state = result is not None and bool(np.isfinite(result.statistics_update).all())
            loaded.push = replace(push, statistics_update=result.statistics_update) if result and has_state else push
            loss = None if result is None else result.loss
            return BatchComputed(ref=ref, loss=loss, seconds={"compute": seconds}, is_overflow=result is not None)
        if learning_rate is None and self._settings.rate_from_worker:
            learning_rate = self._model.rate(loaded.weights.iteration)
        loaded.push = replace(
            push,
            base_iterations=loaded.weights.iterations,
            rate=learning_rate,
            dense_gradient=result.dense_gradient,
            statistics_update=result.statistics_update,
            rows={table: (loaded.tables[table].unique, rows) for table, rows in result.row_gradients.items()},
            magnitudes={
                table: (loaded.tables[table].unique[places], values)
                for table, (places, values) in result.row_magnitudes.items()
            },
        )
        return BatchComputed(ref=ref, loss=result.loss, seconds={"compute": seconds})

    # --- metrics --------------------------------------------------------------------------------------------------

    def collect(self) -> MetricStates:
        """The metric states of the evaluation task that has ended."""
        return encode_states(self._model.metric_states())

    def discard(self) -> None:
        """Drop the metrics of an earlier evaluation task."""
        self._model.reset_metrics()

    # --- auxiliary tasks ------------------------------------------------------------------------------------------

    def sum(self, command: SumStates) -> MetricStates:
        """Add stored metric states to others."""
        return add_parts(command.states, command.parts)

    def merge(self, command: MergeStates) -> dict[str, float]:
        """Results of summed metric states."""
        with self._running_batches.running(command.task, 0, Work.METRICS):
            return self._model.merge(decode_states(command.states))

    def merge_epoch(self, command: ComputeEpochMetrics) -> dict[str, float]:
        """Results of an epoch of training."""
        with self._running_batches.running(command.task, 0, Work.METRICS):
            return self._model.merge(self._model.split_states(np.frombuffer(command.states, "<f8")))

    def run_callbacks(self, command: RunCallbacks) -> MergeResult:
        """Run hooks of the model file's callbacks."""
        with self._running_batches.running(command.task, 0, Work.CALLBACKS):
            return self._settings.callbacks(command)

    def save(self, command: SaveModel) -> float:
        """Save the pinned model of an evaluation; returns the seconds that it took."""
        started_s = time.perf_counter()
        self._settings.save(command.pin, command.keep)
        return time.perf_counter() - started_s

    def export(self, command: ExportModel) -> float:
        """Export the model; returns the seconds that it took."""
        started_s = time.perf_counter()
        with self._running_batches.running(command.task, 0, Work.EXPORT):
            self._settings.export(command)
        return time.perf_counter() - started_s
