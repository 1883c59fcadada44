"""The commands of prediction jobs, on the compute lane: predict batches, write a task's file, publish the files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticdl.shared.errors import InvariantError, UserError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import FailureKind
from elasticdl.worker.core import BatchRef, commands
from elasticdl.worker.core.batch_clock import Work
from elasticdl.worker.core.commands import PredictBatch, PublishPredictions, WritePredictions
from elasticdl.worker.core.events import BatchComputed, BatchFailed
from elasticdl.worker.execution.batch_store import BatchStore, LoadedBatch
from elasticdl.worker.execution.input_lane import ComputeOne
from elasticdl.worker.failures import of_user_error
from elasticdl.worker.ports import Predictive
from elasticdl.worker.predictions import columns
from elasticdl.worker.predictions.formats import encode
from elasticdl.worker.predictions.output import PredictionOutput
from elasticdl.worker.running_batches import RunningBatches


@dataclass(slots=True, kw_only=True)
class Predictor:
    """Predicts the batches of one task after the other."""

    model: Predictive
    store: BatchStore
    running_batches: RunningBatches
    output: PredictionOutput
    progress: Callable[[], None]
    name_record: Callable[[BatchRef, UserError, ComputeOne], UserError]
    _task: TaskRef | None = None
    _predicted: list[columns.Arrays] = field(default_factory=list)
    """Columns of each batch of the task that was predicted, in order."""

    @property
    def handlers(self) -> Mapping[type, Callable[[Any], Any]]:
        """Command -> what executes it."""
        return {
            commands.PredictBatch: self.predict,
            commands.WritePredictions: self.write,
            commands.PublishPredictions: self.publish,
        }

    def predict(self, command: PredictBatch) -> BatchComputed | BatchFailed:
        """Predict a batch. The first batch of a task drops what an earlier attempt has left."""
        ref, loaded = command.ref, self.store[command.ref]
        if loaded.weights is None:
            raise InvariantError(f"{ref} has no weights")
        if ref.batch == 0:
            self._task, self._predicted = ref.task, []
        started_s = time.perf_counter()
        try:
            with self.running_batches.running(ref.task, ref.batch, Work.PREDICT):
                outputs = self.model.outputs(loaded.batch, loaded.weights.dense, loaded.rows())
                found = columns.output_columns(outputs.values, self.model.output_names, loaded.records)
        except UserError as error:
            named = self._named(ref, loaded, error)
            return BatchFailed(ref=ref, failure=of_user_error(named, FailureKind.USER_CODE), step=loaded.step)
        self._predicted.append({**loaded.kept, **found, **outputs.classes})
        return BatchComputed(ref=ref, seconds={"compute": time.perf_counter() - started_s})

    def _named(self, ref: BatchRef, loaded: LoadedBatch, error: UserError) -> UserError:
        """The error with the record that it is about, if it is about one."""
        dense: Any = () if loaded.weights is None else loaded.weights.dense
        with self.running_batches.running(ref.task, ref.batch, Work.PREDICT):
            return self.name_record(
                ref, error, lambda fed, tables: self.model.outputs(fed, dense, loaded.rows_of(tables))
            )

    def write(self, command: WritePredictions) -> str:
        """Write the file of a task whose batches were all predicted; returns its name."""
        if command.task != self._task:
            raise InvariantError(f"{command.task} was not predicted last")
        predicted, self._predicted = self._predicted, []
        content = encode(columns.table(columns.concatenated(predicted)), self.output.suffix)
        return self.output.write(command.task.number, content)

    def publish(self, command: PublishPredictions) -> float:
        """Give the files that count their final names; returns the seconds that it took.

        Raises:
            PermanentError, TransientError: the storage, or a file is gone.
        """
        started_s = time.perf_counter()
        for _ in self.output.publish(command.files):
            self.progress()
        return time.perf_counter() - started_s
