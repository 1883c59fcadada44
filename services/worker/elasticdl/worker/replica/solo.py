"""A ring of one member."""

from __future__ import annotations

import numpy as np

from elasticdl.worker.ports import Doubles
from elasticdl.worker.ps_client import PushOutcome, PushRequest
from elasticdl.worker.ps_client.requests import TaskProgress
from elasticdl.shared.names import TaskId
from elasticdl.worker.replica.membership import RingMembership
from elasticdl.worker.replica.state import Replica
from elasticdl.worker.ring.ports import BatchFacts, Generation, Leading


class SoloRing:
    """Sums the gradients of a round in the order of the plan, and commits it."""

    def __init__(self, replica: Replica, membership: RingMembership, leading) -> None:
        self._replica = replica
        self._membership = membership
        self._leading = leading
        self._pending: dict[tuple[int, int], PushRequest] = {}

    def start(self) -> None:
        self._membership.on_generation(self._on_generation)
        self._membership.report_ready(left=0, step=0, has_model=self._replica.has_model, reason="started")

    def _on_generation(self, generation: Generation) -> None:
        self._generation = generation
        self._leading.lead(generation)

    def next_batch(self, task: TaskId, batches: int) -> TaskProgress:
        known = self._replica.next_batch(task, batches)
        while (task, known) in self._pending:
            known += 1
        return TaskProgress(next_batch=known, credits=self._leading.credits(self._generation))

    def wait_until_open(self, task: TaskId, batch: int, wait_s: float) -> bool:
        return self._replica.is_open(task, batch)

    def push(self, request: PushRequest) -> PushOutcome:
        state = self._replica
        known = state.next_batch(request.task, request.batches)
        if known == request.batch and state.is_open(request.task, request.batch):
            self._pending[request.task, request.batch] = request
            batches = state.round_of(request.task, request.batch)
            lacking = [one for one in batches if state.next_batch(one[0], one[1] + 2) == one[1]]
            if all(one in self._pending for one in lacking):
                self._commit([self._pending.pop(one) for one in lacking])
            known = request.batch + 1
        return PushOutcome(
            next_batch=known, credits=self._leading.credits(self._generation), step=state.core.step, staleness=0
        )

    def _commit(self, requests: list[PushRequest]) -> None:
        total: Doubles | None = None
        for request in requests:
            if request.dense_gradient is not None:
                total = np.zeros(request.dense_gradient.size, np.float64) if total is None else total
                total += request.records * request.dense_gradient.astype(np.float64)
        self._replica.apply([facts_of(request) for request in requests], total)


def facts_of(request: PushRequest) -> BatchFacts:
    return BatchFacts(
        task=request.task,
        batch=request.batch,
        batches=request.batches,
        records=request.records,
        checksum=request.checksum,
        is_empty=request.dense_gradient is None,
        rate=request.rate,
        statistics=request.statistics_update,
        metric_states=request.metric_states,
    )
