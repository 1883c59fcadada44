"""How the results of hooks and the decisions that follow from them change the state."""

from __future__ import annotations

from elasticdl.master.core.evaluation.epochs import evaluation_of_epoch
from elasticdl.master.core.state import State
from elasticdl.shared.job.tasks import MODEL_LOST
from elasticdl.shared.messages.commands import SetLearningRate
from elasticdl.shared.messages.events import TaskFinished


def on_callbacks_result(state: State, task: int, event: TaskFinished) -> None:
    """Apply what the hooks of a task ask for; its results are ``ended``, ``stop_training`` and ``learning_rate``."""
    callbacks, results = state.callbacks, event.results
    if MODEL_LOST in results:
        _on_model_lost(state)
        return
    callbacks.on_result(task, ended="ended" in results)
    callbacks.stops = "stop_training" in results
    callbacks.note = event.note
    callbacks.rate = results.get("learning_rate")


def _on_model_lost(state: State) -> None:
    """Apply that a ps restarted before the hooks of an epoch could save the model: they run again with another model.

    That one has to be evaluated, too, so that the hooks get its results.
    """
    evaluation = evaluation_of_epoch(state, state.callbacks.epochs - 1)
    if evaluation:
        evaluation.final = False
        state.pinned_epochs = min(state.pinned_epochs, evaluation.epoch)


def apply_set_learning_rate(state: State, command: SetLearningRate) -> None:
    """Apply a new learning rate; it replaces that of later epochs."""
    earlier = [(epoch, rate) for epoch, rate in state.callbacks.rates if epoch < command.epoch]
    state.callbacks.rates = [*earlier, (command.epoch, command.rate)]
