"""What the steps of a round need from the rest of the worker: batches of other tasks, their rows, and the gate."""

from __future__ import annotations

from contextlib import AbstractContextManager

from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.shared.wire.messages import Exchange
from elasticdl.worker.core import BatchRef
from elasticdl.worker.core.batch_clock import Activity, Work
from elasticdl.worker.core.events import BatchFailed, BatchUnreadable
from elasticdl.worker.execution.batch_store import LoadedBatch
from elasticdl.worker.execution.compute_lane import step_seed
from elasticdl.worker.execution.input_lane import BatchLoader
from elasticdl.worker.execution.round_steps import RoundAbortedError
from elasticdl.worker.ps_client import PsClient, Pulled, RoundSum
from elasticdl.worker.running_batches import RunningBatches


class WorkerRoundServices:
    """See ``round_steps.RoundServices``."""

    def __init__(self, plan: Plan, loader: BatchLoader, ps: PsClient, running_batches: RunningBatches) -> None:
        self._plan = plan
        self._loader = loader
        self._ps = ps
        self._running_batches = running_batches

    def load(self, task: TaskId, batch: int) -> LoadedBatch:
        """Read and feed a batch."""
        loaded, event = self._loader.load(BatchRef(task=TaskRef(purpose=Purpose.TRAIN, number=task), batch=batch))
        if loaded is not None:
            return loaded
        match event:
            case BatchFailed(failure=failure):
                raise RoundAbortedError(failure.message)
            case BatchUnreadable(reason=reason):
                raise RoundAbortedError(reason)
            case _:
                raise RoundAbortedError("it can't be read")

    def pull_rows(self, loaded: LoadedBatch) -> Pulled:
        """Pull the rows of a batch."""
        return self._ps.pull({table: ids.unique for table, ids in loaded.tables.items()}, dense=False)

    def exchange(self, request: Exchange) -> RoundSum:
        """Contribute to a sum, and wait a little for the other batches."""
        return self._ps.exchange(request)

    def running(self, task: TaskId, batch: int) -> AbstractContextManager[Activity]:
        """Record a batch as running."""
        reference = TaskRef(purpose=Purpose.TRAIN, number=task)
        return self._running_batches.running(reference, batch, Work.TRAIN)

    def step_seed(self, task: TaskId, batch: int) -> int:
        """What the random numbers of a batch follow from."""
        return step_seed(self._plan, task, batch)
