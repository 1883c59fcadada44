"""The metrics of a worker's model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.tasks import MetricStates
from elasticdl.shared.model.metric_states import add_parts, pack_states
from elasticdl.worker.core import commands
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
        self.handlers: Mapping[type, Callable[[Any], Awaitable[Any]]] = {
            commands.CollectMetrics: self._collect,
            commands.DiscardMetrics: self._discard,
            commands.StoreStates: lambda command: store_states(self._bus.stored_states, command),
            commands.LoadStates: self._load,
            commands.SumStates: self._sum,
            commands.MergeStates: self._merge,
            commands.ComputeEpochMetrics: self._compute,
        }

    def add_evaluated(self, records: int) -> None:
        """A batch of an evaluation is computed."""
        self._evaluated += records

    async def _collect(self, _: commands.CollectMetrics) -> MetricStates:
        loss = {"loss": (np.full(1, float(self._evaluated)).tobytes(),)}
        if not self._world.job.shape.metrics:
            return loss
        return {**loss, "curve": (np.full(CURVE_POINTS, float(self._evaluated)).tobytes(),)}

    async def _discard(self, _: commands.DiscardMetrics) -> None:
        self._evaluated = 0

    async def _compute(self, command: commands.ComputeEpochMetrics) -> Mapping[str, float]:
        return self._world.metric_oracle.results(np.frombuffer(command.states))

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
        records = float(np.frombuffer(command.states["loss"][0])[0])
        self._world.oracle.merged(records)
        if "curve" in command.states and (np.frombuffer(command.states["curve"][0]) != records).any():
            raise InvariantError("the metrics of an evaluation contain other records than its loss")
        return {"loss": float(self._world.results.randrange(4)) if self._world.job.shape.patience else 1.0}
