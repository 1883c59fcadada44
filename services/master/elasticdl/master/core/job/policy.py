"""Job kinds: what a job of each kind works through, which services it runs and what follows its last task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from elasticdl.master.core.callbacks.decide import decide_last_callbacks
from elasticdl.master.core.closing import steps
from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.moves.decide import wanted_ps
from elasticdl.master.core.state import State
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.spec import JobKind, JobSpec
from elasticdl.shared.names import PodName, Service, pod_names


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """The rules of one kind of job. All three are pure functions of the spec or the state.

    Attributes:
        plan: the tasks that have to be absorbed before the job closes.
        pods: the pods that should run now, with their services.
        closing_steps: what follows the last task, in this order; see ``elasticdl.master.core.closing.steps``.
        success: the reason why the job succeeds after the last step.
    """

    plan: Callable[[JobSpec], Plan]
    pods: Callable[[State], Mapping[PodName, Service]]
    closing_steps: tuple[Callable[[State], Decisions | None], ...]
    success: str


def policy_of(kind: JobKind) -> JobPolicy:
    """The rules for jobs of a kind."""
    return _POLICIES[kind]


def _ps_and_workers(state: State) -> Mapping[PodName, Service]:
    """The ps first: workers need them."""
    ps = dict.fromkeys(wanted_ps(state), Service.PS)
    return ps | dict.fromkeys(pod_names(Service.WORKER, state.workers), Service.WORKER)


_TRAIN = JobPolicy(
    plan=lambda spec: spec.plan,
    pods=_ps_and_workers,
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
    plan=lambda spec: spec.plan,
    pods=_ps_and_workers,
    closing_steps=(steps.evaluate_finished_model,),
    success="every record was evaluated exactly once",
)
_PREDICT = JobPolicy(
    plan=lambda spec: spec.plan,
    pods=_ps_and_workers,
    closing_steps=(steps.predict_records, steps.publish_predictions),
    success="every record was predicted exactly once",
)
_POLICIES: Mapping[JobKind, JobPolicy] = MappingProxyType(
    {JobKind.TRAIN: _TRAIN, JobKind.EVALUATE: _EVALUATE, JobKind.PREDICT: _PREDICT}
)
