"""The commands of prediction jobs on the virtual clock: the shipped predictor and output folder, over a small model.

The model's predictions say whether it was given the weights that the job started with. Simulated are how long a batch
and a request to the storage take, and the pull. The oracle reads the published files.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from tests.sim.job import OUTPUT, SimJob
from tests.sim.links import drive, pull_replies
from tests.sim.store import SimStore

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import RunningBatch
from elasticdl.shared.names import TaskId
from elasticdl.shared.process.running_batches import RunningBatchesFile
from elasticdl.shared.wire.messages import Floats, Ids
from elasticdl.worker.core import BatchRef, commands, events
from elasticdl.worker.core.batch_clock import Work
from elasticdl.worker.execution.batch_store import BatchStore, LoadedBatch
from elasticdl.worker.execution.predictor import Predictor
from elasticdl.worker.ports import Outputs, TableRows
from elasticdl.worker.predictions.output import SUCCESS, TEMPORARY, PredictionOutput
from elasticdl.worker.ps_client import Pulled
from elasticdl.worker.running_batches import RunningBatches

if TYPE_CHECKING:
    from tests.sim.worker import WorkerProcess

FORMAT = "csv"
RECORD, DIFFERENCE = "record", "prediction"
"""Columns of the published files: the record's number in the data, and how much the weights had changed."""


class _NoFile(RunningBatchesFile):
    """Records nothing: the worker itself does."""

    def __init__(self) -> None:
        pass

    def running(self, task: TaskRef, batch: int) -> AbstractContextManager[None]:
        return nullcontext()


class SimPredictor:
    """Executes the commands of one instance of a worker.

    Args:
        worker: the instance.
    """

    def __init__(self, worker: WorkerProcess) -> None:
        world = worker.world
        self._worker = worker
        self._batches = BatchStore()
        self._dense: Floats | None = None
        self._output = PredictionOutput(
            store=world.store,
            folder=OUTPUT,
            job=world.job.spec.job,
            tasks=world.job.validation.tasks,
            suffix=FORMAT,
            token=lambda: f"{world.random.getrandbits(48):012x}",
        )
        self._predictor = Predictor(
            model=self,
            store=self._batches,
            running_batches=RunningBatches(_NoFile()),
            output=self._output,
            progress=lambda: None,
            name_record=lambda _ref, error, _compute: error,
        )

    @property
    def handlers(self) -> Mapping[type, Callable[[Any], Any]]:
        """Command -> what executes it."""
        return {
            commands.PredictBatch: self.predict,
            commands.WritePredictions: self.write,
            commands.PublishPredictions: self.publish,
        }

    # --- the model ------------------------------------------------------------------------------------------------

    @property
    def output_names(self) -> Sequence[str]:
        """See ``Predictive``."""
        return ()

    def outputs(self, batch: npt.NDArray[np.int64], dense: Floats, rows: TableRows) -> Outputs:
        """How far the weights are from those that every ps was given: float32[records]."""
        difference = float(np.abs(dense - self._worker.world.job.initial).max())
        moved = difference + sum(float(np.abs(values).sum()) for values, _ in rows.values())
        return Outputs(values=np.full(len(batch), moved))

    # --- commands ---------------------------------------------------------------------------------------------------

    async def pull(self, command: commands.PullBatch, ids: dict[str, Ids]) -> events.Event:
        """As ``PsLane``: the dense variables are pulled once."""
        worker, ref = self._worker, command.ref
        settled = await drive(worker, worker.ps.pull(ids, dense=self._dense is None))
        replies = list(pull_replies(settled).values())
        if self._dense is None:
            self._dense = np.zeros_like(worker.world.job.initial)
            for part, reply in zip(settled.sent.splitter.parts, replies, strict=True):
                part.scatter(reply.dense, self._dense)
        rows = {name: np.concatenate([reply.rows.copy() for reply in replies]) for name in ids}
        settled.release()
        weights = Pulled(dense=self._dense, rows=rows, iterations={}, step=0, release=lambda: None)
        self._batches[ref] = self._loaded(ref, weights)
        return events.BatchPulled(ref=ref)

    def _loaded(self, ref: BatchRef, weights: Pulled) -> LoadedBatch:
        plan, task = self._worker.world.job.validation, TaskId(ref.task.number)
        start, records = plan.shards(task)[0].start + ref.batch * plan.minibatch_size, plan.records_of(task, ref.batch)
        numbers = np.arange(start, start + records)
        return LoadedBatch(
            batch=numbers, records=records, checksum=0, tables={}, kept={RECORD: numbers}, weights=weights
        )

    async def predict(self, command: commands.PredictBatch) -> events.Event:
        """Predict a batch."""
        self._worker.running_batches = (RunningBatch(task=command.ref.task, batch=command.ref.batch),)
        await self._worker.step(command.ref, Work.PREDICT, self._worker.world.job.shape.compute_s / 2, None)
        self._worker.running_batches = ()
        return self._predictor.predict(command)

    async def write(self, command: commands.WritePredictions) -> str:
        """Write the file of a task."""
        await self._request()
        file = self._predictor.write(command)
        self._worker.probe("predicted")
        await self._request()
        return file

    async def publish(self, command: commands.PublishPredictions) -> float:
        """Publish the files, with a request to the storage for each one."""
        for _ in self._output.publish(command.files):
            self._worker.world.oracle.published(self._worker.world.store)
            self._worker.probe("published")
            await self._request()
        return 0.0

    def release(self, ref: BatchRef) -> None:
        """Drop a batch."""
        self._batches.release(ref)

    async def _request(self) -> None:
        world = self._worker.world
        await asyncio.sleep(0.2 * world.job.shape.compute_s * world.random.random())


def predicted_wrongly(store: SimStore, job: SimJob) -> list[str]:
    """The published files have exactly one prediction of each record, each in the file of its task."""
    files = {info.uri.removeprefix(f"{OUTPUT}/"): store.read(info.uri) for info in store.list(f"{OUTPUT}/")}
    tasks = job.validation.tasks
    parts = [f"part-{task:05}-of-{tasks:05}.{FORMAT}" for task in range(tasks)]
    found = sorted(name for name in files if not name.startswith(TEMPORARY))
    if found != sorted([SUCCESS, *parts]):
        return [f"the published files are {found}"]
    problems = []
    for task, part in enumerate(parts):
        rows = list(csv.DictReader(io.StringIO(files[part].decode())))
        (shard,) = job.validation.shards(TaskId(task))
        if [int(row[RECORD]) for row in rows] != list(range(shard.start, shard.end)):
            records = [row[RECORD] for row in rows]
            problems.append(f"{part} has predictions of the records {records}, not {shard.start} to {shard.end - 1}")
        if any(float(row[DIFFERENCE]) for row in rows):
            problems.append(f"{part} was predicted with other weights than those of the model")
    return problems
