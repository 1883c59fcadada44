"""The steps of an evaluation: pin the model on every ps, dispatch the tasks, merge the results, close the pins."""

from __future__ import annotations

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.best import decide_save
from elasticdl.master.core.evaluation.merging import merge_command
from elasticdl.master.core.evaluation.state import Evaluation, EvaluationPhase
from elasticdl.master.core.evaluation.triggers import reason_to_start
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import EVALUATION, PIN_PAUSE
from elasticdl.shared.job.tasks import EVALUATION_METRICS, EVALUATION_SUM
from elasticdl.shared.messages.commands import ClosePin, Dispatch, JobState, OpenPin, SetTimer
from elasticdl.shared.names import Purpose


def decide_evaluation(state: State, now_s: float) -> Decisions:
    """The next step of the running evaluation, or the start of one that is due."""
    decisions: Decisions = [
        (ClosePin(ps=ps, evaluation=number), f"evaluation {number} is over")
        for ps, number in sorted(state.pins_to_close)
    ]
    evaluation = state.evaluation
    if evaluation is None:
        return decisions + _start(state, now_s)
    match evaluation.phase:
        case EvaluationPhase.PINNING if len(evaluation.pins) == len(state.holders):
            return decisions + _fill_window(state, evaluation)
        case EvaluationPhase.RUNNING:
            merges = _merge(state, evaluation)
            return decisions + merges + _fill_window(state, evaluation, offset=len(merges))
        case EvaluationPhase.SAVING if not evaluation.save_dispatched:
            return [*decisions, decide_save(state, evaluation)]
        case _:
            return decisions


def _merge(state: State, evaluation: Evaluation) -> Decisions:
    """Sum the blocks that are due; compute the metrics once every task has a result and every sum is stored."""
    stored = evaluation.tasks.stored
    if stored.due:
        return [merge_command(state, EVALUATION_SUM, evaluation.number, count=len(stored.due))]
    if stored.summing or len(evaluation.tasks.window.finished) < state.evaluation_tasks:
        return []
    return [merge_command(state, EVALUATION_METRICS, evaluation.number)]


def _start(state: State, now_s: float) -> Decisions:
    if state.job.validation is None or state.training is None or PIN_PAUSE in state.timers:
        return []
    if not state.all_ps_running or not all(pod.has_model for pod in state.running_holders):
        return []
    reason = reason_to_start(state, now_s)
    if not reason:
        return []
    number = max(state.number_floor, state.evaluations[-1].number if state.evaluations else 0) + 1
    decisions: Decisions = [
        (OpenPin(ps=pod.name, evaluation=number, version=state.placement.version), f"evaluation {number}: {reason}")
        for pod in state.running_holders
    ]
    if state.job.evaluation_interval_s and state.job_state is JobState.TRAINING:
        due_s = now_s + state.job.evaluation_interval_s
        decisions.append((SetTimer(timer=EVALUATION, due_s=due_s), "the next evaluation by the clock"))
    return decisions


def _fill_window(state: State, evaluation: Evaluation, offset: int = 0) -> Decisions:
    """Dispatch the first tasks, or those for which earlier ones have made room."""
    window, first = evaluation.tasks.window, evaluation.number * state.evaluation_tasks
    size = window.size(state.job.limits, state.workers, state.now_s)
    tasks = window.next_tasks(state.evaluation_tasks, size)
    if not tasks:
        return []
    command = Dispatch(
        purpose=Purpose.EVALUATE,
        dispatch=state.dispatches + 1 + offset,
        tasks=tuple((first + start, first + end) for start, end in tasks),
        evaluation=evaluation.number,
    )
    if evaluation.phase is EvaluationPhase.PINNING:
        return [(command, f"evaluation {evaluation.number} is pinned at step {evaluation.step}")]
    return [(command, f"fill the window of {size} tasks of evaluation {evaluation.number}")]
