"""The steps between the last task of a job and its end. Each is done, or says what to do, or waits.

A step returns None once it is done, and no commands while it waits. ``decide.POLICIES`` has the steps of each kind of
job in their order. A job succeeds after the last one.
"""

from __future__ import annotations

from elasticdl.master.core.closing.state import EXPORT, EXPORT_TASKS
from elasticdl.master.core.closing.stopping import order_snapshots
from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.merging import decide_epoch_merges
from elasticdl.master.core.evaluation.triggers import wants_final_evaluation
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import READ_PAUSE, SNAPSHOT_PAUSE
from elasticdl.shared.messages.commands import Dispatch, ReadLedgers
from elasticdl.shared.names import SERVED_REPLICA, Purpose


def audit_final_snapshots(state: State) -> Decisions | None:
    """Take a final snapshot of every ps and compare the ledgers in them with the plan."""
    closing = state.closing
    unasked = [pod.name for pod in state.running_holders if pod.name not in closing.asked]
    if state.job.has_tables_beside_ring and SERVED_REPLICA not in closing.manifests:
        unasked = [ps for ps in unasked if ps == SERVED_REPLICA]  # The ring commits the last round before the ps.
    if unasked and SNAPSHOT_PAUSE not in state.timers:
        return order_snapshots(state, unasked, closing.request, "final", flush=True)
    unread = [ps for ps in sorted(closing.manifests) if ps not in closing.reading]
    if unread and READ_PAUSE not in state.timers:
        return [(ReadLedgers(ps=ps, manifest=closing.manifests[ps]), f"audit of {ps}") for ps in unread]
    return None if not unread and closing.audit and closing.audit.exact else []


def merge_epoch_metrics(state: State) -> Decisions | None:
    """Compute the training metrics of the last epochs, and wait for all metrics that are being computed."""
    merges = decide_epoch_merges(state)
    return merges if merges or any(merge.is_awaited for merge in state.merges.values()) else None


def evaluate_finished_model(state: State) -> Decisions | None:
    """Wait for the evaluation of the finished model, which ``decide_evaluation`` starts."""
    return [] if wants_final_evaluation(state) else None


def predict_records(state: State) -> Decisions | None:
    """Keep the window of dispatched tasks full until every task has predictions."""
    window, tasks = state.prediction.window, state.evaluation_tasks
    if len(window.finished) == tasks:
        return None
    missing = window.next_tasks(tasks, window.size(state.job.limits, state.workers, state.now_s))
    if not missing:
        return []
    command = Dispatch(purpose=Purpose.PREDICT, dispatch=state.dispatches + 1, tasks=missing)
    return [(command, f"{tasks - len(window.finished)} tasks have no predictions yet")]


def publish_predictions(state: State) -> Decisions | None:
    """Give the files that count their final names, once no earlier attempt to do so runs any more."""
    if state.closing.exported:
        return None
    if state.closing.export_dispatch or EXPORT in state.running_attempts:
        return []
    command = Dispatch(purpose=Purpose.EXPORT, dispatch=state.dispatches + 1, tasks=EXPORT_TASKS)
    return [(command, "every record is predicted")]


def export_model(state: State) -> Decisions | None:
    """Export the model, once no earlier export writes the same files any more."""
    if not state.job.output or state.closing.exported:
        return None
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
    reason = f"the model of evaluation {best} is the best one" if best else "the model is complete and audited"
    return [(command, reason)]
