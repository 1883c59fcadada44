"""The best model: which evaluated version it is, how it is saved, and early stopping, which ends training early."""

from __future__ import annotations

import math

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.state import Evaluation, EvaluationPhase
from elasticdl.master.core.job.failure import VALIDATION_HINT
from elasticdl.master.core.state import State
from elasticdl.shared.job.spec import BestModel
from elasticdl.shared.messages.commands import Command, Dispatch, EndTraining, JobState
from elasticdl.shared.messages.events import FailureKind
from elasticdl.shared.names import Purpose


def is_better(spec: BestModel, value: float, best: float | None) -> bool:
    """Whether a value is better than the best one; NaN never is."""
    if best is None or math.isnan(value):
        return not math.isnan(value)
    return value > best + spec.min_delta if spec.is_max else value < best - spec.min_delta


def on_results(state: State, evaluation: Evaluation) -> None:
    """Compare the results of an evaluation with the best ones; the model is saved if they are better.

    A loss that is NaN or infinite fails the job: with such a model training can't recover.
    """
    spec = state.job.best
    evaluation.phase = EvaluationPhase.DONE
    loss = evaluation.results.get("loss", 0.0)
    if not math.isfinite(loss):
        message = f"the validation loss is {loss} at step {evaluation.step} (evaluation {evaluation.number})"
        state.fail(f"{message}\n  {VALIDATION_HINT}", kind=FailureKind.NOT_FINITE)
    if spec is None or evaluation.epoch < spec.from_epoch:
        return
    value = evaluation.results.get(spec.metric, math.nan)
    if is_better(spec, value, state.best.value):
        state.best.value, state.best.number = value, evaluation.number
        state.best.stale_epochs = 0
        if spec.save:
            evaluation.phase = EvaluationPhase.SAVING
    elif evaluation.is_epoch_end and not any(_is_of_same_epoch(each, evaluation) for each in state.evaluations):
        state.best.stale_epochs += 1


def _is_of_same_epoch(earlier: Evaluation, evaluation: Evaluation) -> bool:
    """Whether an earlier evaluation has results of the same epoch: its model was lost before callbacks saved it."""
    if earlier.number == evaluation.number or not earlier.is_epoch_end or not earlier.results:
        return False
    return earlier.epoch == evaluation.epoch


def decide_save(state: State, evaluation: Evaluation) -> tuple[Command, str]:
    """Have a worker save the pinned model of an evaluation."""
    number = evaluation.number
    command = Dispatch(
        purpose=Purpose.EXPORT,
        dispatch=state.dispatches + 1,
        tasks=((number, number + 1),),
        evaluation=number,
        label=str(state.best.saved),
    )
    return command, f"evaluation {number} is the best one so far"


def on_saved(state: State, number: int) -> None:
    """Apply that the model of an evaluation is saved."""
    evaluation = state.evaluation
    if evaluation is None or evaluation.number != number or evaluation.phase is not EvaluationPhase.SAVING:
        return
    state.best.saved, state.best.saved_value = number, state.best.value
    evaluation.phase = EvaluationPhase.DONE
    state.close_pins(evaluation)


def on_save_lost(state: State, evaluation: Evaluation) -> None:
    """Apply that a ps has ended before the model was saved: the results count, the model is gone."""
    evaluation.phase = EvaluationPhase.DONE
    state.best.value, state.best.number = state.best.saved_value, state.best.saved


def decide_early_end(state: State) -> Decisions:
    """End training after too many epochs without a better value: at the end of the last epoch that has begun."""
    spec, training, stale = state.job.best, state.training, state.best.stale_epochs
    if spec is None or training is None or not spec.patience or stale < spec.patience:
        return []
    size = state.plan.tasks_per_epoch
    epochs = -(-training.begun // size)
    if state.job_state is not JobState.TRAINING or epochs * size >= state.plan.tasks:
        return []
    return [(EndTraining(epochs=epochs), f"val_{spec.metric} has not improved in {stale} epochs")]
