"""The input lane: reads and feeds batches of training and validation data, and finds their ids."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial

from elasticdl.shared.errors import ElasticDLError, TransientError, UserError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import FailureKind
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.worker.core import BatchRef
from elasticdl.worker.core.batch_clock import Work
from elasticdl.worker.core.commands import ReadBatch
from elasticdl.worker.core.events import BatchFailed, BatchRead, BatchUnreadable
from elasticdl.worker.execution.batch_store import BatchStore, LoadedBatch
from elasticdl.worker.failures import of_user_error
from elasticdl.worker.input.bad_record import feed_naming_records, may_be_about_a_record, name_computed
from elasticdl.worker.input.records import TaskRecords
from elasticdl.worker.input.table_ids import table_ids
from elasticdl.worker.ports import FedBatch, Feeder, TableIds, Trainee
from elasticdl.worker.running_batches import RunningBatches

ComputeOne = Callable[[FedBatch, Mapping[str, TableIds]], object]
"""Computes a batch, given the ids of its tables."""
_PURPOSES_WITH_DATA = (Purpose.TRAIN, Purpose.EVALUATE, Purpose.PREDICT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The data of one purpose; for one thread at a time. ``records``: reads them, by their plan."""

    records: TaskRecords
    feeder: Feeder

    def task_of(self, task: TaskRef) -> TaskId:
        """The task in the plan. Every evaluation repeats the validation plan's tasks under new numbers."""
        plan = self.records.plan
        return TaskId(task.number if task.purpose is Purpose.TRAIN else task.number % plan.tasks)


class BatchLoader:
    """Reads batches."""

    def __init__(
        self,
        training: Dataset,
        validation: Dataset | None,
        *,
        model: Trainee,
        store: BatchStore,
        running_batches: RunningBatches,
    ) -> None:
        self._training = training
        self._validation = validation
        self._model = model
        self._store = store
        self._running_batches = running_batches
        self._lock = threading.Lock()
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="tasks ahead")

    def read(self, command: ReadBatch) -> BatchRead | BatchFailed | BatchUnreadable:
        """Read and feed a batch and find its ids; an error names the record that caused it."""
        loaded, event = self.load(command.ref)
        if loaded is not None:
            self._store[command.ref] = loaded
        return event

    def prefetch(self, tasks: Sequence[TaskRef]) -> None:
        """Begin to read the data of tasks that were just taken, and return at once; any thread may call.

        What can't be read now is read, or refused, with the batch.
        """
        self._ahead.submit(self._prefetch, tasks)

    def _prefetch(self, tasks: Sequence[TaskRef]) -> None:
        for task in tasks:
            data = self._data_of(task)
            if data is not None and task.purpose in _PURPOSES_WITH_DATA:
                with suppress(ElasticDLError):
                    data.records.prefetch(data.task_of(task))

    def load(self, ref: BatchRef) -> tuple[LoadedBatch | None, BatchRead | BatchFailed | BatchUnreadable]:
        """A batch without keeping it, and what there is to say of it; any thread may call."""
        with self._lock:
            return self._load(ref)

    def name_record(self, ref: BatchRef, error: UserError, compute: ComputeOne) -> UserError:
        """The error of computing a batch, with the record that it is about if it is about one; any thread may call."""
        data = self._data_of(ref.task)
        if data is None or not may_be_about_a_record(error):
            return error
        task, is_training = data.task_of(ref.task), ref.task.purpose is Purpose.TRAIN
        with self._lock, suppress(TransientError, UserError):  # The data may be gone by now.
            raw = data.records.batch(task, ref.batch)
            return name_computed(
                error,
                data.feeder,
                data.records,
                task,
                raw,
                lambda fed: compute(fed, table_ids(self._model, fed, training=is_training)),
            )
        return error

    def _load(self, ref: BatchRef) -> tuple[LoadedBatch | None, BatchRead | BatchFailed | BatchUnreadable]:
        is_training = ref.task.purpose is Purpose.TRAIN
        data = self._data_of(ref.task)
        if data is None:
            raise ValueError(f"{ref} without validation data")
        kind, task, started_s = FailureKind.DATA, data.task_of(ref.task), time.perf_counter()
        try:
            with self._running_batches.running(ref.task, ref.batch, Work.READ):
                with self._running_batches.waiting() if data.records.are_remote else nullcontext():
                    raw = data.records.batch(task, ref.batch)
                kind, read_s = FailureKind.USER_CODE, time.perf_counter()
                find_ids = partial(table_ids, self._model, training=is_training)
                batch, tables = feed_naming_records(data.feeder, data.records, task, raw, find_ids)
                fed_s = time.perf_counter()
                if ref.task.purpose is Purpose.PREDICT and (batch is None or batch.count != raw.count):
                    raise _dropped(raw.count - (batch.count if batch else 0))
        except TransientError as error:
            return None, BatchUnreadable(ref=ref, reason=str(error))
        except UserError as error:
            return None, BatchFailed(ref=ref, failure=of_user_error(error, kind))
        loaded = LoadedBatch(batch=batch, records=raw.count, checksum=raw.checksum, tables=tables, kept=raw.kept)
        seconds = {"read": read_s - started_s, "feed": fed_s - read_s}
        return loaded, BatchRead(
            ref=ref, records=raw.count, checksum=raw.checksum, is_empty=batch is None, seconds=seconds
        )

    def _data_of(self, task: TaskRef) -> Dataset | None:
        return self._training if task.purpose is Purpose.TRAIN else self._validation


def _dropped(records: int) -> UserError:
    """A prediction job writes one prediction for each record, so its feed must not drop any."""
    return UserError(
        f"the feed drops {records} records of a batch in mode 'predict', so these would have no prediction",
        hint="Filter records only in the modes 'train' and 'evaluate', or remove them from the data.",
    )
