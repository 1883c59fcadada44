"""How pins, results and failures change the state of an evaluation."""

from __future__ import annotations

from elasticdl.master.core.evaluation.best import on_save_lost
from elasticdl.master.core.evaluation.epochs import epoch_to_evaluate
from elasticdl.master.core.evaluation.merging import end_evaluation_merges
from elasticdl.master.core.evaluation.metric_states import discard_states, drop_evaluated_states
from elasticdl.master.core.evaluation.state import Evaluation, EvaluationPhase
from elasticdl.master.core.evaluation.task_results import StoredTree, TaskResults
from elasticdl.master.core.evaluation.triggers import reason_to_start
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import PIN_PAUSE, RETRY_S
from elasticdl.shared.job.tasks import EVALUATION_METRICS, EVALUATION_SUM
from elasticdl.shared.messages.commands import Dispatch, JobState, OpenPin
from elasticdl.shared.messages.events import Envelope, ModelPinned, TaskFinished, TaskReturned
from elasticdl.shared.names import Purpose


def apply_open_pin(state: State, command: OpenPin, now_s: float) -> None:
    """Apply the order to pin the model; the first one of an evaluation starts it."""
    if state.evaluations and state.evaluations[-1].number >= command.evaluation:
        return
    evaluation = Evaluation(
        number=command.evaluation,
        reason=reason_to_start(state, now_s),
        epoch=state.training.epochs_complete - 1 if state.training else -1,
        is_epoch_end=state.job_state is JobState.CLOSING or epoch_to_evaluate(state) > 0,
        final=state.job_state is JobState.CLOSING,
        started_s=now_s,
    )
    state.evaluation_due.clear()
    state.evaluations.append(evaluation)
    _forget_evaluations(state)


def _forget_evaluations(state: State) -> None:
    """Forget evaluations beyond the limit, except those that a later decision may need: the log has all of them."""
    surplus = len(state.evaluations) - max(1, state.job.limits.evaluations_max)
    if surplus <= 0 or not state.forgets_evaluations:
        return
    kept = []
    for evaluation in state.evaluations[:surplus]:
        if _is_needed(state, evaluation):
            kept.append(evaluation)
        else:
            state.forgotten_evaluations += evaluation.phase is EvaluationPhase.DONE
    state.evaluations[:surplus] = kept


def _is_needed(state: State, evaluation: Evaluation) -> bool:
    """Whether a decision may need an earlier evaluation.

    The final one tells that no other is wanted, and the model of the best one is exported. Those at the end of an epoch
    tell whether it has results, and its callbacks get these.
    """
    if evaluation.phase is not EvaluationPhase.DONE:
        return False
    epochs = [state.evaluations[-1].epoch]
    if state.job.callbacks:
        epochs.append(state.callbacks.epochs - 1)
    is_of_epoch = evaluation.is_epoch_end and evaluation.epoch >= min(epochs)
    return evaluation.final or is_of_epoch or evaluation.number in (state.best.number, state.best.saved)


def apply_failed_open_pin(state: State, command: OpenPin, time_s: float) -> None:
    """Apply that a ps could not be asked for a pin: the evaluation starts again under a new number."""
    if state.evaluation and state.evaluation.number == command.evaluation:
        abandon_evaluation(state)
        state.timers[PIN_PAUSE] = time_s + RETRY_S


def on_model_pinned(state: State, envelope: Envelope, event: ModelPinned) -> None:
    """Apply that a ps has pinned its part of the model."""
    evaluation = state.evaluation
    pod = state.pods.get(envelope.name)
    if evaluation is None or evaluation.number != event.evaluation:
        # The evaluation ended before the pin was opened: it will not be read.
        if pod and pod.incarnation == envelope.incarnation and pod.phase is PodPhase.RUNNING:
            state.pins_to_close.add((envelope.name, event.evaluation))
        return
    if pod is None or pod.incarnation != envelope.incarnation:
        if envelope.name not in evaluation.pins:
            # A former instance took the order; the present one may not have received it.
            apply_failed_open_pin(state, OpenPin(ps=envelope.name, evaluation=evaluation.number), envelope.time_s)
        return
    evaluation.pins[envelope.name] = event.step
    evaluation.incarnations[envelope.name] = envelope.incarnation


def apply_evaluation_dispatch(state: State, command: Dispatch) -> None:
    """Apply the dispatch of some of an evaluation's tasks; the first one ends the pinning."""
    evaluation = state.evaluation
    if evaluation is None or evaluation.number != command.evaluation:
        return
    if evaluation.phase is EvaluationPhase.PINNING:
        evaluation.phase = EvaluationPhase.RUNNING
        evaluation.dispatch = command.dispatch
        stored = StoredTree(size=state.evaluation_tasks, fan=max(2, state.job.limits.stored_states_max))
        evaluation.tasks = TaskResults(first=command.tasks[0][0], stored=stored)
        if evaluation.is_epoch_end:
            state.pinned_epochs = max(state.pinned_epochs, evaluation.epoch + 1)
    first = evaluation.tasks.first
    evaluation.tasks.window.on_dispatched(
        tuple((start - first, end - first) for start, end in command.tasks), state.now_s
    )


def on_evaluation_result(state: State, event: TaskFinished) -> None:
    """Apply the result of one evaluation task; the first one wins."""
    evaluation = state.evaluation
    # Once every result is there, the states are merged and dropped: they no longer tell which tasks have a result.
    if (
        evaluation is None
        or evaluation.phase is not EvaluationPhase.RUNNING
        or event.dispatch < evaluation.dispatch
        or not evaluation.tasks.awaits(event.task.number)
    ):
        discard_states(state, event.stored_states)
        return
    evaluation.tasks.add(event.task.number, event.states, event.stored_states)
    evaluation.records += event.records
    evaluation.checksum = (evaluation.checksum + event.checksum) % (1 << 64)
    if not state.job.kind.trains and len(evaluation.tasks.window.finished) == state.evaluation_tasks:
        state.check_records("evaluation", "evaluated", evaluation.records, evaluation.checksum)


def on_pin_lost(state: State, event: TaskReturned, time_s: float) -> None:
    """Apply that a ps has answered a worker that it does not have the evaluated model.

    As a rule the evaluation was abandoned when the ps with the pin ended. But a former instance can still answer.
    """
    evaluation, number = state.evaluation, event.task.number
    if evaluation is None:
        return
    if event.task.purpose is Purpose.EVALUATE:
        is_present = evaluation.phase is EvaluationPhase.RUNNING and evaluation.tasks.awaits(number)
    else:
        is_present = evaluation.phase is EvaluationPhase.SAVING and evaluation.number == number
    if is_present:
        abandon_evaluation(state)
        state.timers[PIN_PAUSE] = time_s + RETRY_S


def on_states_lost(state: State, event: TaskReturned) -> None:
    """Apply that the metric states of a merge task are gone: an evaluation that needs its result starts again."""
    merge = state.merges.get(event.task.number)
    if merge is not None and merge.label in (EVALUATION_SUM, EVALUATION_METRICS):
        abandon_evaluation(state)


def abandon_evaluation(state: State) -> None:
    """Apply that a pin or the metric states are lost: the evaluation starts again under a new number.

    One at the end of an epoch starts again only while the next epoch has not begun: see ``epoch_to_evaluate``.
    """
    evaluation = state.evaluation
    if evaluation is None:
        return
    if evaluation.phase is EvaluationPhase.SAVING:
        on_save_lost(state, evaluation)
        state.close_pins(evaluation)
        return
    evaluation.phase = EvaluationPhase.ABANDONED
    drop_evaluated_states(state, evaluation)
    end_evaluation_merges(state, evaluation.number)
    state.close_pins(evaluation)
    if evaluation.is_epoch_end:
        state.pinned_epochs = min(state.pinned_epochs, evaluation.epoch)
    else:
        state.evaluation_due.append(evaluation.reason)
