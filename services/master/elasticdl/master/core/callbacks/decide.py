"""When the hooks of an epoch run, and the commands that they ask for.

The next epoch waits for ``on_epoch_begin`` (see ``dispatch_limit``), so a stop or a learning rate holds exactly from
there.
"""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.epochs import epoch_to_evaluate, evaluation_of_epoch
from elasticdl.master.core.evaluation.merging import merge_command
from elasticdl.master.core.evaluation.state import EvaluationPhase
from elasticdl.master.core.state import State
from elasticdl.shared.job.tasks import CALLBACKS, LAST_CALLBACKS
from elasticdl.shared.messages.commands import EndTraining, JobState, SetLearningRate


def decide_callbacks(state: State) -> Decisions:
    """Run the hooks that are due during training."""
    training = state.training
    if not state.job.callbacks or training is None or state.job_state is not JobState.TRAINING:
        return []
    if training.is_complete or (state.callbacks.is_active and not _has_results(state)):
        return []
    return _run(state, CALLBACKS)


def decide_last_callbacks(state: State) -> Decisions | None:
    """The closing step: run the hooks of the last epoch; None once they have run."""
    callbacks, epochs = state.callbacks, state.plan.epochs_run
    if not state.job.callbacks or (callbacks.epochs >= epochs and not callbacks.is_active):
        return None
    # A log that lost its end has forgotten hooks of earlier epochs: their results are in the job's storage.
    return _run(state, LAST_CALLBACKS if callbacks.epochs >= epochs else CALLBACKS)


def _has_results(state: State) -> bool:
    """Whether the epoch that began last is complete, and all its results are there that will come."""
    training, epoch = state.training, state.callbacks.epochs - 1
    if training is None or training.epochs_complete <= epoch or epoch_to_evaluate(state):
        return False
    if training.statistics.merged_epochs <= epoch:
        return False
    evaluation = state.evaluation
    return not evaluation or not evaluation.is_epoch_end or evaluation.phase is EvaluationPhase.SAVING


def _run(state: State, label: str) -> Decisions:
    task = state.callbacks.next_task
    labels = (CALLBACKS, LAST_CALLBACKS)
    if any(merge.subject == task and merge.label in labels and not merge.done for merge in state.merges.values()):
        return []
    if task % 2 == 0 and not (state.all_ps_running and all(pod.has_model for pod in state.running_holders)):
        return []  # What a ps that ended has absorbed is known again when it has restored its ledgers.
    return [merge_command(state, label, task, instances=_instances_of_epoch(state, task))]


def _instances_of_epoch(state: State, task: int) -> Mapping[str, str]:
    """The instances of the ps with the model at the end of the epoch that the hooks of a task end.

    If the epoch was evaluated, they are those that had the evaluated model: a ps that was restored since has absorbed
    the lost batches once more, perhaps in another order.
    """
    if task % 2:
        return {}
    evaluation = evaluation_of_epoch(state, task // 2 - 1)
    if evaluation:
        return {str(ps): str(instance) for ps, instance in evaluation.incarnations.items()}
    return {str(pod.name): str(pod.incarnation) for pod in state.running_holders}


def results_of_epoch(state: State, task: int) -> Mapping[str, float]:
    """The results that the hooks of a task get: those of training, and with ``val_`` those of the validation data."""
    if state.training is None or task % 2:
        return {}
    epoch = task // 2 - 1
    totals = state.training.epochs.get(epoch)
    logs = {"loss": totals.loss, **totals.results} if totals and totals.batches else {}
    for evaluation in state.evaluations:
        if evaluation.epoch == epoch and (evaluation.is_epoch_end or evaluation.final):
            logs |= {f"val_{name}": value for name, value in evaluation.results.items()}
    return logs


def decide_learning_rate(state: State) -> Decisions:
    """Set the learning rate that the hooks ask for, from the epoch on that begins."""
    callbacks = state.callbacks
    epoch = callbacks.epochs - 1
    if callbacks.rate is None or not callbacks.is_active or callbacks.rate == callbacks.rate_of(epoch):
        return []
    reason = callbacks.note or "the optimizer's learning rate"
    return [(SetLearningRate(epoch=epoch, rate=callbacks.rate), reason)]


def decide_stop(state: State) -> Decisions:
    """End training where a hook has set ``stop_training``."""
    training, callbacks = state.training, state.callbacks
    if training is None or not callbacks.stops or state.job_state is not JobState.TRAINING:
        return []
    size = state.plan.tasks_per_epoch
    epochs = max(callbacks.epochs, -(-training.begun // size))
    if epochs * size >= state.plan.tasks:
        return []
    return [(EndTraining(epochs=epochs), callbacks.note or "a callback stopped training")]
