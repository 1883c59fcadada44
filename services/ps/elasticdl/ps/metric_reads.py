"""Answers to workers that compute the training metrics of an epoch."""

from __future__ import annotations

from elasticdl.ps.shard.admission import check_plan
from elasticdl.ps.shard.core import PsCore
from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.wire.messages import MetricsReply, ReadMetrics


def read_metrics(core: PsCore, request: ReadMetrics) -> MetricsReply:
    """The sum of an epoch, if a group here has it. Sums of earlier epochs are dropped: their metrics are on the log.

    Raises:
        RefusedError: another plan or version of the placement, or not ready.
    """
    check_plan(request.plan, core.plan)
    with core.lock:
        for group in core.serving(request.placement_version).groups:
            if group.metrics is not None:
                group.metrics.drop_before(request.epoch)
                found = group.metrics.of(request.epoch)
                return MetricsReply(
                    complete=_is_complete(group.ledger, core.plan, request.epoch),
                    batches=found.batches,
                    records=found.records,
                    states=found.states.copy(),
                )
    return MetricsReply()


def _is_complete(ledger: Ledger, plan: Plan, epoch: int) -> bool:
    """Whether every task of an epoch is absorbed. A resume may have added epochs that this ps' plan does not have."""
    first = epoch * plan.tasks_per_epoch
    end = first + plan.tasks_per_epoch
    return ledger.has_all(first, min(end, plan.tasks) if plan.is_truncated else end)
