"""The end of a job whose training is complete: final snapshots, audit, final evaluation, export."""

from __future__ import annotations

from elasticdl.master.core.closing.state import EXPORT, EXPORT_TASKS
from elasticdl.master.core.closing.stopping import order_snapshots, stop_all
from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.merging import decide_epoch_merges
from elasticdl.master.core.evaluation.triggers import wants_final_evaluation
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import READ_PAUSE, SNAPSHOT_PAUSE
from elasticdl.shared.messages.commands import Dispatch, EnterState, JobState, ReadLedgers
from elasticdl.shared.names import Purpose


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
    if state.job_state is not JobState.CLOSING:
        return []
    return _next_step(state)


def _next_step(state: State) -> Decisions:
    closing = state.closing
    unasked = [pod.name for pod in state.running_holders if pod.name not in closing.asked]
    if unasked and SNAPSHOT_PAUSE not in state.timers:
        return order_snapshots(state, unasked, closing.request, "final", flush=True)
    unread = [ps for ps in sorted(closing.manifests) if ps not in closing.reading]
    if unread and READ_PAUSE in state.timers:
        return []
    if unread:
        return [(ReadLedgers(ps=ps, manifest=closing.manifests[ps]), f"audit of {ps}") for ps in unread]
    if closing.audit is None or not closing.audit.exact:
        return []
    merges = decide_epoch_merges(state)
    if merges or any(not merge.done for merge in state.merges.values()) or wants_final_evaluation(state):
        return merges
    if state.job.output and not closing.exported:
        return _export(state)
    return [(EnterState(state=JobState.SUCCEEDED), "the audit is exact"), *stop_all(state, "the job has succeeded")]


def _export(state: State) -> Decisions:
    """Export the model, once no earlier export writes the same files any more."""
    if state.closing.export_dispatch or EXPORT in state.running_attempts:
        return []
    best = state.best.saved
    command = Dispatch(
        purpose=Purpose.EXPORT,
        dispatch=state.dispatches + 1,
        tasks=EXPORT_TASKS,
        evaluation=best,
        label=state.new_output,
        audited={} if best else {pod.name: pod.incarnation for pod in state.running_holders},
    )
    return [
        (command, f"the model of evaluation {best} is the best one" if best else "the model is complete and audited")
    ]
