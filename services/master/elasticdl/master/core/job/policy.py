"""What follows the last task of a job of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from elasticdl.master.core.callbacks.decide import decide_last_callbacks
from elasticdl.master.core.closing import steps
from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.state import State
from elasticdl.shared.job.kinds import JobKind


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """The rules of one kind of job.

    Attributes:
        closing_steps: what follows the last task, in this order; see ``elasticdl.master.core.closing.steps``.
        success: the reason why the job succeeds after the last step.
    """

    closing_steps: tuple[Callable[[State], Decisions | None], ...]
    success: str


_TRAIN = JobPolicy(
    closing_steps=(
        steps.audit_final_snapshots,
        steps.merge_epoch_metrics,
        steps.evaluate_finished_model,
        decide_last_callbacks,
        steps.export_model,
    ),
    success="the audit is exact",
)
_EVALUATE = JobPolicy(
    closing_steps=(steps.evaluate_finished_model,),
    success="every record was evaluated exactly once",
)
_PREDICT = JobPolicy(
    closing_steps=(steps.predict_records, steps.publish_predictions),
    success="every record was predicted exactly once",
)
POLICIES: Mapping[JobKind, JobPolicy] = MappingProxyType(
    {JobKind.TRAIN: _TRAIN, JobKind.EVALUATE: _EVALUATE, JobKind.PREDICT: _PREDICT}
)
