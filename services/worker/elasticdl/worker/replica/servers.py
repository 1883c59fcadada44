"""What the lanes of a worker in a ring see: its own replica for training, and ps-0 for everything else.

If the model has tables, they are on ps. A batch is in the transaction of its round twice, with its rows and with its
dense gradient: see docs/adr/0046-rings-with-tables.md.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from elasticdl.shared.names import TaskId
from elasticdl.shared.wire.messages import NO_DOUBLES, NO_FLOATS
from elasticdl.worker.ports import Ids
from elasticdl.worker.ps_client import EpochMetrics, PsClient, PullDelayedError, Pulled, PushOutcome, PushRequest
from elasticdl.worker.ps_client.dense_and_tables import DenseAndTables, joined
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

    def __init__(self, replica: Replica, ring: Contributing, ps: PsClient | DenseAndTables) -> None:
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
        return self._contribute(request)

    def _contribute(self, request: PushRequest) -> PushOutcome:
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


class RingAndTables(RingServers):
    """A ring of workers with the dense variables, and ps with the tables.

    A batch is pushed to the ps first, and contributed once each of them has absorbed it. So the ring commits no round
    that a ps lacks. The ps make the update of a round when they are asked for the rows of the next one, which a worker
    does once its replica has committed the round: until then, a batch that is computed again gets the same rows.
    """

    def __init__(self, replica: Replica, ring: Contributing, ps: DenseAndTables) -> None:
        super().__init__(replica, ring, ps)
        self._tables = ps.tables

    def next_batch(self, task: TaskId, batches: int) -> TaskProgress:
        """How far a task is, by the ledgers of the own replica and of all ps."""
        own, tables = self._ring.next_batch(task, batches), self._tables.next_batch(task, batches)
        return replace(
            tables, next_batch=min(own.next_batch, tables.next_batch), credits={**own.credits, **tables.credits}
        )

    def pull(
        self, ids: Mapping[str, Ids], *, pin: int = 0, dense: bool = True, batch: tuple[int, int] | None = None
    ) -> Pulled:
        """The weights for a training batch from the own replica, its rows from the ps; see ``RingServers``.

        Raises:
            PullDelayedError: a round before is not committed yet, or a ps lacks it.
        """
        if batch is None or pin:
            return super().pull(ids, pin=pin, dense=dense, batch=batch)
        own = self.pull_when_open(batch, PULL_WAIT_S)
        return joined(own, self._tables.pull(ids, dense=False, batch=batch))

    def push(self, request: PushRequest) -> PushOutcome:
        """Have every ps absorb the rows of a batch, then contribute the rest of it."""
        of_replica = replace(request, rows={}, magnitudes={})
        if problem := self._replica.problem_of(of_replica):
            return PushOutcome(next_batch=request.batch, credits={}, step=0, not_finite=problem)
        tables = self._tables.push(
            replace(
                request,
                dense_gradient=None if request.dense_gradient is None else NO_FLOATS,
                statistics_update=NO_FLOATS,
                metric_states=NO_DOUBLES,
            )
        )
        if tables.not_finite or tables.next_batch <= request.batch:
            return tables
        own = self._contribute(of_replica)
        return replace(
            tables,
            next_batch=min(own.next_batch, tables.next_batch),
            credits={**own.credits, **tables.credits},
            step=max(own.step, tables.step),
        )
