"""Which evaluations the state forgets: a job may have any number of them, and the log has them all."""

from __future__ import annotations

from elasticdl.master.core.evaluation.state import Evaluation, EvaluationPhase
from elasticdl.master.core.state import State


def forget_evaluations(state: State) -> None:
    """An evaluation has begun: forget earlier ones beyond the limit, except those that a later decision may need."""
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
