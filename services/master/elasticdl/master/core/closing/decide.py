"""The end of a job whose tasks are all absorbed: the closing steps of its kind, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from elasticdl.master.core.callbacks.decide import decide_last_callbacks
from elasticdl.master.core.closing import steps
from elasticdl.master.core.closing.stopping import stop_all
from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.state import State
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.messages.commands import EnterState, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """What follows the last task of a job of one kind.

    Attributes:
        closing_steps: in this order; see ``steps``.
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


def decide_closing(state: State) -> Decisions:
    """The next step of a job that has absorbed every task."""
    training = state.training
    if training is None or not state.all_ps_running or state.move:
        return []
    if not training.is_complete:
        if state.job_state is JobState.CLOSING:
            return [(EnterState(state=JobState.TRAINING), "a restored ps lacks tasks")]
        return []
    if state.job_state is JobState.TRAINING:
        if state.evaluation is not None:
            return []
        return [(EnterState(state=JobState.CLOSING), "every ps is credited with every task")]
    return _next_step(state) if state.job_state is JobState.CLOSING else []


def _next_step(state: State) -> Decisions:
    policy = POLICIES[state.job.kind]
    for step in policy.closing_steps:
        decisions = step(state)
        if decisions is not None:
            return decisions
    return [(EnterState(state=JobState.SUCCEEDED), policy.success), *stop_all(state, "the job has succeeded")]
