"""Settings of the worker's core."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.rounds import Rounds
from elasticdl.worker.core.pipelining import PipelineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """What the core needs to know of the job and of its limits.

    Attributes:
        validation: the validation tasks; None without validation data.
        lease_s: seconds after which the broker delivers a task again unless its lease is extended.
        lease_deadline_s: seconds without progress after which leases are no longer extended.
        idle_poll_s: seconds to wait for a task when the queue was found empty before.
        patience_s: seconds to wait for a task before the queue counts as empty. With staleness 1 a push waits that
            long for the next batch, so that a seeded run does not depend on timing.
        failure_pause_s: seconds without taking tasks after a failed one, so that it does not come straight back.
        stop_grace_s: seconds that the running batch may take after a stop was requested.
        rounds: synchronous training: which batches make one update; None: asynchronous.
        pull_poll_s: seconds between two pulls for a batch that has to wait for other workers.
        round_patience_s: seconds of waiting for a round before the worker looks for a further task of the cohort.
        straggler_s: seconds of waiting for a round before the master is told, at least.
    """

    plan: Plan
    validation: Plan | None = None
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    lease_s: float = 10.0
    lease_deadline_s: float = 300.0
    idle_poll_s: float = 1.0
    patience_s: float = 1.0
    failure_pause_s: float = 0.5
    stop_grace_s: float = 1.4
    rounds: Rounds | None = None
    pull_poll_s: float = 0.002
    round_patience_s: float = 0.5
    straggler_s: float = 3.0
