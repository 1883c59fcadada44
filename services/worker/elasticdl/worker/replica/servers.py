"""What the lanes of a worker in a ring see: its own replica for training, and ps-0 for everything else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from elasticdl.shared.names import TaskId
from elasticdl.worker.ports import Ids
from elasticdl.worker.ps_client import EpochMetrics, PsClient, PullDelayedError, Pulled, PushOutcome, PushRequest
from elasticdl.worker.ps_client.requests import TaskProgress
from elasticdl.worker.replica.state import Replica

PULL_WAIT_S = 0.1
"""Seconds. A worker that waits longer for a round asks again; in between it can take another task or stop."""


class Contributing(Protocol):
    """The ring, as this module needs it: see ``ring.replica_set.ReplicaSet``."""

    def next_batch(self, task: TaskId, batches: int) -> TaskProgress:
        """How far a task is."""
        ...

    def wait_until_open(self, task: TaskId, batch: int, wait_s: float) -> bool:
        """Wait until every round before that of a batch is committed; whether it is."""
        ...

    def push(self, request: PushRequest) -> PushOutcome:
        """Contribute a batch to its round."""
        ...


class RingServers:
    """See ``ports.ParameterServers``."""

    def __init__(self, replica: Replica, ring: Contributing, ps: PsClient) -> None:
        self._replica = replica
        self._ring = ring
        self._ps = ps

    def next_batch(self, task: TaskId, batches: int) -> TaskProgress:
        """How far a task is, by the ledger of the own replica."""
        return replace(self._ring.next_batch(task, batches), placement_version=self._version())

    def read_metrics(self, epoch: int, skipped: tuple[int, ...] = ()) -> EpochMetrics:
        """The training metrics of an epoch."""
        return self._ps.read_metrics(epoch, skipped)

    def pull(
        self, ids: Mapping[str, Ids], *, pin: int = 0, dense: bool = True, batch: tuple[int, int] | None = None
    ) -> Pulled:
        """The weights for a training batch from the own replica, others from ps-0."""
        if batch is None or pin:
            return self._ps.pull(ids, pin=pin, dense=dense, batch=batch)
        return self.pull_when_open(batch, PULL_WAIT_S)

    def pull_when_open(self, batch: tuple[int, int], wait_s: float) -> Pulled:
        """The weights for a training batch.

        Raises:
            PullDelayedError: a round before is not committed within ``wait_s``.
        """
        if not self._ring.wait_until_open(TaskId(batch[0]), batch[1], wait_s):
            raise PullDelayedError("the round before is not committed yet")
        return self._replica.pull(batch)

    def push(self, request: PushRequest) -> PushOutcome:
        """Contribute a batch. What is NaN or infinite is not contributed."""
        if problem := self._replica.problem_of(request):
            return PushOutcome(next_batch=request.batch, credits={}, step=0, not_finite=problem)
        outcome = self._ring.push(request)
        has_gradient = request.dense_gradient is not None
        return replace(outcome, placement_version=self._version(), staleness=0 if has_gradient else None)

    def push_and_pull(
        self, request: PushRequest, ids: Mapping[str, Ids], batch: tuple[int, int]
    ) -> tuple[PushOutcome, Pulled | None, float]:
        """Contribute a batch, then pull for the next one."""
        outcome = self.push(request)
        if not outcome.is_certainly_pulled(request, sent_once=True):
            return outcome, None, 0.0
        started_s = time.perf_counter()
        try:
            pulled = self.pull(ids, batch=batch)
        except PullDelayedError:
            return outcome, None, time.perf_counter() - started_s
        return outcome, pulled, time.perf_counter() - started_s

    def _version(self) -> int:
        return self._replica.core.placement.version
