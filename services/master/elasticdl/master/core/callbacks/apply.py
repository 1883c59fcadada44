"""How the results of hooks and the decisions that follow from them change the state."""

from __future__ import annotations

from elasticdl.master.core.state import State
from elasticdl.shared.messages.commands import SetLearningRate
from elasticdl.shared.messages.events import TaskFinished


def on_callbacks_result(state: State, task: int, event: TaskFinished) -> None:
    """Apply what the hooks of a task ask for; its results are ``ended``, ``stop_training`` and ``learning_rate``."""
    callbacks, results = state.callbacks, event.results
    callbacks.on_result(task, ended="ended" in results)
    callbacks.stops = "stop_training" in results
    callbacks.note = event.note
    callbacks.rate = results.get("learning_rate")


def apply_set_learning_rate(state: State, command: SetLearningRate) -> None:
    """Apply a new learning rate; it replaces that of later epochs."""
    earlier = [(epoch, rate) for epoch, rate in state.callbacks.rates if epoch < command.epoch]
    state.callbacks.rates = [*earlier, (command.epoch, command.rate)]
