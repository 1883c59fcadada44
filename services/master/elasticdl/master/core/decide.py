"""``decide``: the commands that the state needs now, with their reasons."""

from __future__ import annotations

from elasticdl.master.core.callbacks.decide import decide_callbacks, decide_learning_rate, decide_stop
from elasticdl.master.core.closing.decide import decide_closing
from elasticdl.master.core.closing.stopping import decide_stopping
from elasticdl.master.core.decision import Decision, Decisions
from elasticdl.master.core.evaluation.best import decide_early_end
from elasticdl.master.core.evaluation.decide import decide_evaluation
from elasticdl.master.core.evaluation.merging import decide_epoch_merges
from elasticdl.master.core.evaluation.metric_states import decide_removal
from elasticdl.master.core.moves.decide import decide_moving
from elasticdl.master.core.pods.restarts import decide_pods
from elasticdl.master.core.rings.decide import decide_ring
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import EVALUATION
from elasticdl.master.core.training.dispatch_window import decide_dispatch
from elasticdl.master.core.training.speculation import decide_speculation
from elasticdl.shared.messages.commands import Dispatch, EnterState, JobState, ReturnDelivery, SetTimer


def decide(state: State, now_s: float) -> Decision:
    """Decide what to do now. Pure: neither argument is changed. ``now_s``: seconds since 1970."""
    if state.spec is None or state.term == 0:
        return Decision()
    decisions = _returns(state) + decide_removal(state)
    if state.is_final:
        return Decision.of(decisions)
    stopping = decide_stopping(state, now_s)
    if stopping or state.job_state is JobState.STOPPING:
        return Decision.of(decisions + stopping)
    if not state.pods_settled:
        decisions += decide_pods(state)
    decisions += decide_ring(state)
    decisions += decide_moving(state)
    decisions += _start_training(state, now_s)
    decisions += decide_learning_rate(state)
    closing = decide_closing(state) or decide_early_end(state) or decide_stop(state)
    decisions += closing
    if not closing:
        decisions += decide_dispatch(state, now_s) or decide_speculation(state, now_s)
        decisions += decide_evaluation(state, now_s)
        if state.job_state is JobState.TRAINING and not any(isinstance(c, Dispatch) for c, _ in decisions):
            decisions += decide_epoch_merges(state) or decide_callbacks(state)
    return Decision.of(decisions)


def _returns(state: State) -> Decisions:
    """Return the deliveries of ended workers to the queue, without waiting for their leases."""
    replies = dict.fromkeys(state.deliveries_to_return)
    return [(ReturnDelivery(reply=reply), "its worker has ended") for reply in replies]


def _start_training(state: State, now_s: float) -> Decisions:
    if state.job_state is not JobState.STARTING or not state.all_ps_running:
        return []
    decisions: Decisions = [(EnterState(state=JobState.TRAINING), "every ps is ready")]
    if state.job.validation and state.job.evaluation_interval_s:
        due_s = now_s + state.job.evaluation_interval_s
        decisions.append((SetTimer(timer=EVALUATION, due_s=due_s), "the first evaluation by the clock"))
    return decisions
