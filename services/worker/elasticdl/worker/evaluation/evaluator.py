"""Evaluation of one task on a pinned model: batch k is computed while another thread reads and feeds batch k + 1."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages.events import FailureKind, RunningBatch
from elasticdl.shared.names import TaskId
from elasticdl.worker.failures import Failure, of_user_error
from elasticdl.worker.input.bad_record import feed_naming_records
from elasticdl.worker.input.records import TaskRecords
from elasticdl.worker.input.table_ids import table_ids
from elasticdl.worker.ports import Feeder, TableIds
from elasticdl.worker.training.context import WorkContext
from elasticdl.worker.training.tallies import Stopwatch, Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The validation data.

    Attributes:
        records: reads it, by its plan of one epoch.
        feeder: the user's feed for evaluation.
    """

    records: TaskRecords
    feeder: Feeder

    def task_of(self, message: TaskMessage) -> TaskId:
        """Every evaluation has the plan's tasks again, with numbers that go on."""
        return TaskId(message.task.number % self.records.plan.tasks)


class BatchError(ElasticDLError):
    """A batch failed by the user's fault; carries what to report."""

    def __init__(self, batch: int, failure: Failure) -> None:
        super().__init__(failure.message)
        self.batch = batch
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fed:
    """A batch that lacks nothing but the model; ``batch`` is None when the user's filter dropped every record."""

    batch: Any
    records: int
    tables: Mapping[str, TableIds]
    seconds: Mapping[str, float]


class Evaluator:
    """Runs on the main thread, between two training batches.

    Args:
        context: what the threads share.
    """

    def __init__(self, context: WorkContext) -> None:
        self._model = context.model
        self._ps = context.ps
        self._leases = context.leases
        self._hand = context.hand
        self._stop = context.stop

    def run(self, data: Validation, message: TaskMessage) -> Tally | None:
        """Evaluate a task.

        Returns:
            What was counted, metric states included; None after a stop.

        Raises:
            BatchError: the data or the user's code.
            PinLostError: the pinned state is gone.
            TransientError: storage or ps are away.
        """
        batches = data.records.plan.batches_of(data.task_of(message))
        tally = Tally()
        self._model.reset_metrics("evaluate")
        # The first batch is prepared before anything is computed, so the ids' function is never traced beside a step's.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="evaluation") as ahead:
            coming = ahead.submit(self._prepare, data, message, 0)
            for batch in range(batches):
                fed = coming.result()
                if self._stop.is_asked():
                    return None
                if batch + 1 < batches:
                    coming = ahead.submit(self._prepare, data, message, batch + 1)
                self._compute(fed, message, batch, tally)
                self._leases.progress()
        tally.add_states(self._model.metric_states("evaluate"))
        return tally

    def _prepare(self, data: Validation, message: TaskMessage, batch: int) -> _Fed:
        watch = Stopwatch()
        kind = FailureKind.DATA
        try:
            with self._hand.holding(RunningBatch(task=message.task, batch=batch)):
                with watch.timed("read"):
                    raw = data.records.batch(data.task_of(message), batch)
                kind = FailureKind.USER_CODE
                with watch.timed("feed"):
                    find_ids = partial(table_ids, self._model, training=False)
                    task = data.task_of(message)
                    fed, tables = feed_naming_records(data.feeder, data.records, task, raw, find_ids)
        except UserError as error:
            raise BatchError(batch, of_user_error(error, kind)) from error
        return _Fed(batch=fed, records=raw.count, tables=tables, seconds=watch.seconds)

    def _compute(self, fed: _Fed, message: TaskMessage, batch: int, tally: Tally) -> None:
        tally.add_seconds(fed.seconds)
        if fed.batch is None:
            tally.add_batch(batch, records=fed.records)
            return
        started_s = time.perf_counter()
        model = self._ps.pull({table: ids.unique for table, ids in fed.tables.items()}, pin=message.evaluation)
        pulled_s = time.perf_counter()
        try:
            rows = {table: (model.rows[table], ids.inverse) for table, ids in fed.tables.items()}
            with self._hand.holding(RunningBatch(task=message.task, batch=batch)):
                loss = self._model.evaluate(fed.batch, model.dense, rows)
        except UserError as error:
            raise BatchError(batch, of_user_error(error, FailureKind.USER_CODE)) from error
        finally:
            model.release()
        tally.add_batch(batch, records=fed.records, loss=loss)
        tally.add_seconds({"pull": pulled_s - started_s, "compute": time.perf_counter() - pulled_s})
