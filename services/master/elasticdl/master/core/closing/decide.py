"""The end of a job whose tasks are all absorbed: the closing steps of its kind, one after the other."""

from __future__ import annotations

from elasticdl.master.core.closing.stopping import stop_all
from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.job.policy import POLICIES
from elasticdl.master.core.state import State
from elasticdl.shared.messages.commands import EnterState, JobState


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
