"""``decide``: from the state and the time to commands with reasons."""

from __future__ import annotations

from elasticdl.master.core.closing.closing import decide_closing, decide_stopping
from elasticdl.master.core.decision import Decision, Decisions
from elasticdl.master.core.evaluation import decide_epoch_merges, decide_evaluation
from elasticdl.master.core.moves import decide_moving, wanted_ps
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import EVALUATION, restart_of
from elasticdl.master.core.training.bookkeeping import window_of
from elasticdl.master.core.training.speculation import decide_speculation
from elasticdl.shared.messages.commands import (
    Dispatch,
    EnterState,
    JobState,
    ReturnDelivery,
    SetTimer,
    StartPod,
    StopPod,
)
from elasticdl.shared.names import Purpose, Service, pod_name


def decide(state: State, now_s: float) -> Decision:
    """What should be done now. Pure: neither argument is changed.

    Args:
        state: everything that is known.
        now_s: seconds since the epoch.
    """
    if state.spec is None or state.term == 0:
        return Decision()
    decisions: Decisions = _returns(state)
    if state.is_final:
        return Decision.of(decisions)
    stopping = decide_stopping(state, now_s)
    if stopping or state.job_state is JobState.STOPPING:
        return Decision.of(decisions + stopping)
    decisions += _pods(state)
    decisions += decide_moving(state)
    if state.job_state is JobState.STARTING and state.all_ps_running:
        decisions.append((EnterState(state=JobState.TRAINING), "every ps serves"))
        if state.job.validation and state.job.evaluation_interval_s:
            due_s = now_s + state.job.evaluation_interval_s
            decisions.append((SetTimer(timer=EVALUATION, due_s=due_s), "the first evaluation by the clock"))
    closing = decide_closing(state)
    decisions += closing
    if not closing:
        training = _training(state, now_s)
        decisions += training or decide_speculation(state, now_s)
        decisions += decide_evaluation(state, now_s)
        if state.job_state is JobState.TRAINING and not any(isinstance(c, Dispatch) for c, _ in decisions):
            decisions += decide_epoch_merges(state)
    return Decision.of(decisions)


def _returns(state: State) -> Decisions:
    return [(ReturnDelivery(reply=reply), "its worker is gone") for reply in dict.fromkeys(state.to_return)]


def _pods(state: State) -> Decisions:
    """Every wanted pod that is not there is started; one that died of its own fault waits for its timer."""
    wanted = dict.fromkeys(wanted_ps(state), Service.PS)
    wanted |= {pod_name(Service.WORKER, number): Service.WORKER for number in range(state.workers)}
    decisions: Decisions = [
        (StopPod(pod=name, reason="fewer are wanted"), f"{state.workers} workers and {state.ps} ps are wanted")
        for name, pod in sorted(state.pods.items())
        if name not in wanted and pod.phase not in (PodPhase.EXITED, PodPhase.STOPPING)
    ]
    for name, service in wanted.items():
        known = state.pods.get(name)
        if known is None:
            decisions.append((StartPod(pod=name, service=service), "the job wants it"))
        elif known.is_silent:
            decisions.append((StopPod(pod=name, reason="silent", kill=True), f"{name} does not answer"))
        elif known.phase is PodPhase.EXITED and restart_of(name) not in state.timers:
            decisions.append((StartPod(pod=name, service=service), f"{name} has exited"))
    return decisions


def _training(state: State, now_s: float) -> Decisions:
    """Keep the window of dispatched tasks full."""
    training = state.training
    if training is None or not state.all_ps_running or state.job_state is not JobState.TRAINING:
        return []
    elapsed_s = max(now_s - state.first_step_s, 1.0) if state.first_step_s else 1.0
    tasks_per_s = len(training.counted) / elapsed_s
    window = window_of(tasks_per_s, state.job.limits.window_s, state.workers)
    again, fresh = training.next_tasks(window)
    decisions: Decisions = []
    dispatch = state.dispatches
    if again:
        dispatch += 1
        ranges = tuple((task, task + 1) for task in again)
        command = Dispatch(purpose=Purpose.TRAIN, dispatch=dispatch, tasks=ranges, again=True)
        decisions.append((command, "some ps lacks them"))
    if fresh:
        dispatch += 1
        command = Dispatch(purpose=Purpose.TRAIN, dispatch=dispatch, tasks=fresh)
        decisions.append((command, f"a window of {window} tasks"))
    return decisions
