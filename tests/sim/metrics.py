"""The metrics of a worker's model: those of training say how often each batch of the job was counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.tasks import MetricStates, TaskRef
from elasticdl.shared.model.metric_states import add_parts, pack_states
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.worker.core import BatchRef, commands
from elasticdl.worker.execution.broker_lane import load_states, store_states

if TYPE_CHECKING:
    from tests.sim.worker import WorkerProcess

CURVE_POINTS = 16
"""States of an evaluation that are large enough to be stored beside the log."""


class SimMetrics:
    """Executes the commands about metrics of one worker."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._bus = worker.bus
        self._world = worker.world
        self._evaluated = 0
        """Records in the metrics of the running evaluation task."""
        self._trained: dict[TaskRef, npt.NDArray[np.float64]] = {}
        self.handlers: Mapping[type, Callable[[Any], Awaitable[Any]]] = {
            commands.CollectMetrics: self._collect,
            commands.DiscardMetrics: self._discard,
            commands.StoreStates: lambda command: store_states(self._bus.stored_states, command),
            commands.LoadStates: self._load,
            commands.SumStates: self._sum,
            commands.MergeStates: self._merge,
        }

    def add_evaluated(self, records: int) -> None:
        """A batch of an evaluation is computed."""
        self._evaluated += records

    def add_trained(self, ref: BatchRef) -> None:
        """A batch is computed for the first time."""
        job = self._world.job
        counts = self._trained.setdefault(ref.task, np.zeros(len(job.batches)))
        counts[job.numbers[TaskId(ref.task.number), ref.batch]] += 1

    async def _collect(self, command: commands.CollectMetrics) -> MetricStates:
        is_training = command.tasks[0].purpose is Purpose.TRAIN
        loss = {"loss": (np.full(1, float(self._evaluated)).tobytes(),)}
        if not self._world.job.shape.metrics:
            return {} if is_training else loss
        if not is_training:
            return {**loss, "curve": (np.full(CURVE_POINTS, float(self._evaluated)).tobytes(),)}
        counts = np.zeros(len(self._world.job.batches))
        for task in command.tasks:
            counts += self._trained.pop(task, np.zeros_like(counts))
        return {"batches": (counts.tobytes(),)}

    async def _discard(self, command: commands.DiscardMetrics) -> None:
        self._evaluated = 0
        self._trained.pop(command.task, None)

    async def _load(self, command: commands.LoadStates) -> tuple[bytes, ...]:
        parts = await load_states(self._bus.stored_states, command)
        if len(parts) < len(command.numbers):
            # The states say so: they must not count unless another worker has merged them before.
            return (*parts, *pack_states({"missing": (np.ones(1).tobytes(),)}))
        return parts

    @staticmethod
    async def _sum(command: commands.SumStates) -> MetricStates:
        return add_parts(command.states, command.parts)

    async def _merge(self, command: commands.MergeStates) -> Mapping[str, float]:
        if "missing" in command.states:
            return {"missing": 1.0}
        if "batches" in command.states:
            return self._world.oracle.merged_epoch(np.frombuffer(command.states["batches"][0]))
        records = float(np.frombuffer(command.states["loss"][0])[0])
        self._world.oracle.merged(records)
        if "curve" in command.states and (np.frombuffer(command.states["curve"][0]) != records).any():
            raise InvariantError("the metrics of an evaluation contain other records than its loss")
        return {"loss": float(self._world.results.randrange(4)) if self._world.job.shape.patience else 1.0}
