"""The epoch barrier: no task of the next epoch is dispatched before the model at the end of an epoch is pinned.

Everything here follows from the folded log, so a successor of the master finds the same barrier.
"""

from __future__ import annotations

from elasticdl.master.core.evaluation.state import Evaluation, EvaluationPhase
from elasticdl.master.core.state import State
from elasticdl.master.core.training.state import Training


def epoch_to_evaluate(state: State) -> int:
    """How many epochs are complete, if exactly these are in the model and their end is not pinned yet; 0 otherwise.

    A task of a later epoch that was dispatched, or that a ledger contains, makes it too late: another state must not
    be shown as the end of the epoch. The last epoch is left to the final evaluation.
    """
    training = state.training
    if training is None or state.job.validation is None or not state.job.evaluate_epochs or training.is_complete:
        return 0
    complete = training.epochs_complete
    if complete <= state.pinned_epochs or has_later_batches(training, complete * state.plan.tasks_per_epoch):
        return 0
    return complete


def has_later_batches(training: Training, end: int) -> bool:
    """Whether batches of tasks from ``end`` on may be in the model."""
    return training.begun > end


def _decisive_epoch(state: State) -> int:
    """The epoch, from 1, whose evaluation decides whether training ends early; 0: none.

    The next epoch waits for it, so that training ends where the evaluated epoch ends.
    """
    spec, evaluation, best = state.job.best, state.evaluation, state.best
    if spec is None or evaluation is None or not evaluation.is_epoch_end or best.value is None:
        return 0
    is_last_try = 0 < spec.patience <= best.stale_epochs + 1
    return evaluation.epoch + 1 if is_last_try and evaluation.phase is not EvaluationPhase.SAVING else 0


def dispatch_limit(state: State) -> int:
    """Tasks from this number on wait for the end of an epoch, or for the callbacks before their epoch."""
    plan = state.plan
    if state.job.callbacks:
        begun = min(state.callbacks.epochs * plan.tasks_per_epoch, plan.tasks)
        return min(begun, _evaluation_limit(state))
    return _evaluation_limit(state)


def _evaluation_limit(state: State) -> int:
    training, plan = state.training, state.plan
    if training is None or state.job.validation is None or not state.job.evaluate_epochs:
        return plan.tasks
    epochs = epoch_to_evaluate(state) or _decisive_epoch(state) or training.epochs_complete + 1
    return min(epochs * plan.tasks_per_epoch, plan.tasks)


def evaluation_of_epoch(state: State, epoch: int) -> Evaluation | None:
    """The last evaluation of the model at the end of an epoch, from 0, that has results; None if absent."""
    for evaluation in reversed(state.evaluations):
        if evaluation.epoch == epoch and evaluation.results and (evaluation.is_epoch_end or evaluation.final):
            return evaluation
    return None


def adopt_evaluation(state: State, batches: int) -> None:
    """Let the last evaluation be the final one if it has read the audited model.

    That is so after early stopping: the same instances have absorbed nothing since they pinned the end of the epoch.
    A final snapshot applies half-filled gradient accumulators, which an asynchronous job can have at that time.
    """
    evaluation = state.evaluations[-1] if state.evaluations else None
    if evaluation is None or not evaluation.is_epoch_end or evaluation.phase is not EvaluationPhase.DONE:
        return
    instances = {pod.name: pod.incarnation for pod in state.running_holders}
    has_flushed = state.job.grads_to_wait > 1 and not state.job.synchronous
    if evaluation.step == batches and evaluation.incarnations == instances and not has_flushed:
        evaluation.final = True
