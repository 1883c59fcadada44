"""Evaluations: pin, hand out, gather, merge."""

from __future__ import annotations

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.moves import wants_move
from elasticdl.master.core.state import Evaluation, EvaluationPhase, State
from elasticdl.master.core.timers import EVALUATION, PIN_PAUSE
from elasticdl.master.core.training.bookkeeping import sum_states, to_bytes
from elasticdl.shared.job.tasks import MetricStates
from elasticdl.shared.messages.commands import ClosePin, Command, Dispatch, JobState, OpenPin, SetTimer
from elasticdl.shared.messages.events import TaskFinished
from elasticdl.shared.names import Purpose


def decide_evaluation(state: State, now_s: float) -> Decisions:
    """What the evaluations need now."""
    decisions: Decisions = [
        (ClosePin(ps=ps, evaluation=number), f"evaluation {number} is over")
        for ps, number in sorted(state.pins_to_close)
    ]
    evaluation = state.evaluation
    if evaluation is None:
        return decisions + _start(state, now_s)
    match evaluation.phase:
        case EvaluationPhase.PINNING if len(evaluation.pins) == len(state.holders):
            return decisions + _hand_out(state, evaluation)
        case EvaluationPhase.RUNNING if len(evaluation.states) == evaluation_tasks(state):
            return [*decisions, _merge(state, "evaluation", evaluation.number)]
        case _:
            return decisions


def decide_epoch_merges(state: State) -> Decisions:
    """Training metrics of complete epochs become numbers, if the model has metrics."""
    training = state.training
    if training is None:
        return []
    asked = {merge.subject for merge in state.merges.values() if merge.label == "epoch"}
    return [
        _merge(state, "epoch", epoch, offset)
        for offset, epoch in enumerate(
            epoch
            for epoch in sorted(training.epochs)
            if epoch not in asked and training.epochs[epoch].states and training.has_epoch(epoch)
        )
    ]


def evaluation_tasks(state: State) -> int:
    """Tasks of one evaluation."""
    return state.job.validation.tasks if state.job.validation else 0


def _start(state: State, now_s: float) -> Decisions:
    if state.job.validation is None or state.training is None or PIN_PAUSE in state.timers:
        return []
    if not state.all_ps_running or not all(pod.has_model for pod in state.running_holders):
        return []
    reason = ""
    if state.job_state is JobState.TRAINING and state.evaluation_due and not wants_move(state):
        if state.evaluations and now_s < state.evaluations[-1].started_s + state.job.evaluation_interval_s:
            return []
        if state.training.is_behind:
            return []  # What a ps lost is learned again first: its state is older than that of the others.
        reason = state.evaluation_due[-1]
    elif state.job_state is JobState.CLOSING and wants_final_evaluation(state):
        reason = "training is complete"
    if not reason:
        return []
    number = max(state.floor, state.evaluations[-1].number if state.evaluations else 0) + 1
    decisions: Decisions = [
        (OpenPin(ps=pod.name, evaluation=number, version=state.placement.version), f"evaluation {number}: {reason}")
        for pod in state.running_holders
    ]
    if state.job.evaluation_interval_s and state.job_state is JobState.TRAINING:
        due_s = now_s + state.job.evaluation_interval_s
        decisions.append((SetTimer(timer=EVALUATION, due_s=due_s), "the next evaluation by the clock"))
    return decisions


def wants_final_evaluation(state: State) -> bool:
    """Whether the closing job still lacks its last evaluation."""
    audit = state.closing.audit
    done = any(evaluation.final and evaluation.phase is EvaluationPhase.DONE for evaluation in state.evaluations)
    return state.job.validation is not None and audit is not None and audit.exact and not done


def _hand_out(state: State, evaluation: Evaluation) -> Decisions:
    tasks = evaluation_tasks(state)
    first = evaluation.number * tasks
    command = Dispatch(
        purpose=Purpose.EVALUATE,
        dispatch=state.dispatches + 1,
        tasks=((first, first + tasks),),
        evaluation=evaluation.number,
    )
    return [(command, f"evaluation {evaluation.number} is pinned at step {evaluation.step}")]


def _merge(state: State, label: str, subject: int, offset: int = 0) -> tuple[Command, str]:
    number = max([state.floor, *state.merges]) + 1 + offset
    command = Dispatch(
        purpose=Purpose.MERGE,
        dispatch=state.dispatches + 1 + offset,
        tasks=((number, number + 1),),
        evaluation=subject,
        label=label,
    )
    return command, f"every part of {label} {subject} is there"


def merge_states(state: State, label: str, subject: int) -> MetricStates:
    """The summed states that a merge task carries."""
    if label == "epoch":
        totals = state.training.epochs.get(subject) if state.training else None
        return to_bytes(totals.states) if totals else {}
    evaluation = next((e for e in state.evaluations if e.number == subject), None)
    return sum_states(evaluation.states) if evaluation else {}


def start_evaluation_if_new(state: State, number: int, now_s: float) -> None:
    """Fold the first OpenPin of an evaluation."""
    if state.evaluations and state.evaluations[-1].number >= number:
        return
    epochs = state.training.epochs_complete if state.training else 0
    final = state.job_state is JobState.CLOSING
    reason = "training is complete" if final or not state.evaluation_due else state.evaluation_due[-1]
    state.evaluation_due.clear()
    state.evaluations.append(Evaluation(number=number, reason=reason, epoch=epochs - 1, final=final, started_s=now_s))


def abandon_evaluation(state: State) -> None:
    """A ps that held a pin is gone: evaluate again, under a new number."""
    evaluation = state.evaluation
    if evaluation is None:
        return
    evaluation.phase = EvaluationPhase.ABANDONED
    evaluation.states = {}
    for merge in state.merges.values():
        if merge.label == "evaluation" and merge.subject == evaluation.number:
            merge.done = True  # Nobody waits for what may still come of it.
    _close_pins(state, evaluation)
    if not evaluation.final:
        state.evaluation_due.append(evaluation.reason)


def note_evaluation_result(state: State, event: TaskFinished) -> None:
    """Fold the result of one evaluation task; the first one wins."""
    evaluation = state.evaluation
    tasks = evaluation_tasks(state)
    if evaluation is None or not tasks or event.task.number // tasks != evaluation.number:
        return
    evaluation.states.setdefault(event.task.number, event.states)


def note_merge_result(state: State, event: TaskFinished, time_s: float) -> None:
    """Fold the numbers that a merge task made."""
    merge = state.merges.get(event.task.number)
    if merge is None or merge.done:
        return
    merge.done = True
    if merge.label == "epoch":
        if state.training and merge.subject in state.training.epochs:
            totals = state.training.epochs[merge.subject]
            totals.results = dict(event.results)
            totals.merged = True
            totals.states = {}
        return
    evaluation = state.evaluation
    if evaluation and evaluation.number == merge.subject:
        evaluation.results = dict(event.results)
        evaluation.ended_s = time_s
        evaluation.phase = EvaluationPhase.DONE
        _close_pins(state, evaluation)
        evaluation.states = {}


def _close_pins(state: State, evaluation: Evaluation) -> None:
    for ps, incarnation in evaluation.incarnations.items():
        pod = state.pods.get(ps)
        if pod and pod.incarnation == incarnation:
            state.pins_to_close.add((ps, evaluation.number))
