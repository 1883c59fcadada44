"""Mutations of evaluation: which state of the model is evaluated and saved, and which results count."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced
from tests.sim.schedule import evaluation_schedule

from elasticdl.master.core.callbacks import decide as callbacks
from elasticdl.master.core.evaluation import apply, best, epochs
from elasticdl.master.core.pods import apply as pods
from elasticdl.master.core.task_window import TaskWindow
from elasticdl.master.core.training import apply as tasks
from elasticdl.master.core.training import dispatch_window
from elasticdl.shared.messages.commands import EndTraining
from elasticdl.worker.core import auxiliary_tasks
from elasticdl.worker.core import evaluation as evaluation_tasks
from elasticdl.worker.core.commands import RunCallbacks, SaveModel

decide = sys.modules["elasticdl.master.core.decide"]
"""The module; the package has a function of the same name."""


@mutation("the next epoch begins when the end of the present one is pinned", protects=Protects.EXACTLY_ONCE)
def the_next_epoch_waits_for_the_pins() -> Iterator[None]:
    """Without this rule the next one would notice that it is too late for an evaluation, so both are removed."""

    def dispatch_limit(state: Any) -> int:
        end = (state.training.epochs_complete + 1) * state.plan.tasks_per_epoch
        return int(min(end, state.plan.tasks))

    with (
        replaced(dispatch_window, "dispatch_limit", dispatch_limit),
        replaced(epochs, "has_later_batches", lambda training, end: False),
    ):
        yield


@mutation("a model that contains later batches is not evaluated as the end of an epoch", protects=Protects.EXACTLY_ONCE)
def later_batches_are_noticed() -> Iterator[None]:
    with replaced(epochs, "has_later_batches", lambda training, end: False):
        yield


@mutation("training ends early at the end of the last epoch that has begun", protects=Protects.EXACTLY_ONCE)
def training_ends_behind_what_has_begun() -> Iterator[None]:
    """Without this rule the next epoch would still wait for the result, so both are removed."""
    original = best.decide_early_end

    def decide_early_end(state: Any) -> Any:
        epochs = state.training.epochs_complete if state.training else 0
        return [(EndTraining(epochs=epochs), reason) for _, reason in original(state) if epochs]

    with replaced(decide, "decide_early_end", decide_early_end), replaced(epochs, "_decisive_epoch", lambda state: 0):
        yield


@mutation("the best model is saved from its pin", protects=Protects.EXACTLY_ONCE)
def the_pin_is_saved() -> Iterator[None]:
    def save_model(*, pin: int, keep: int) -> SaveModel:
        return SaveModel(pin=0, keep=keep)

    with replaced(auxiliary_tasks, "SaveModel", save_model):
        yield


@mutation(
    "the hooks of an epoch read the model from the instances that the task names",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-ps-dies-while-the-hooks-of-an-epoch-run",
)
def checkpoints_are_read_from_the_named_instances() -> Iterator[None]:
    def run_callbacks(**fields: Any) -> RunCallbacks:
        return RunCallbacks(**fields | {"instances": {}})

    with replaced(auxiliary_tasks, "RunCallbacks", run_callbacks):
        yield


@mutation(
    "the hooks of an evaluated epoch read the model from the instances that were evaluated",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-ps-and-the-master-die-before-the-hooks-of-an-epoch",
)
def checkpoints_are_of_the_evaluated_instances() -> Iterator[None]:
    with replaced(callbacks, "evaluation_of_epoch", lambda state, epoch: None):
        yield


@mutation(
    "the first result of a task counts in an evaluation, and no other",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-worker-is-killed-between-a-result-and-its-acknowledgement",
)
def evaluated_tasks_count_once() -> Iterator[None]:
    original = apply.on_evaluation_result

    def on_evaluation_result(state: Any, event: Any) -> None:
        if state.evaluation:
            results = state.evaluation.tasks
            results.window.outstanding.add(event.task.number - results.first)
        original(state, event)

    with replaced(tasks, "on_evaluation_result", on_evaluation_result):
        yield


@mutation(
    "a result counts only in the evaluation that dispatched its task",
    protects=Protects.EXACTLY_ONCE,
    schedule=evaluation_schedule,
)
def results_of_former_evaluations_are_ignored() -> Iterator[None]:
    original = apply.on_evaluation_result

    def on_evaluation_result(state: Any, event: Any) -> None:
        if evaluation := state.evaluation:
            number = evaluation.tasks.first + event.task.number % state.evaluation_tasks
            original(state, replace(event, dispatch=evaluation.dispatch, task=replace(event.task, number=number)))

    with replaced(tasks, "on_evaluation_result", on_evaluation_result):
        yield


@mutation(
    "an evaluation whose ps has ended starts again on a new pin",
    protects=Protects.LIVENESS,
    schedule=evaluation_schedule,
)
def lost_evaluations_start_again() -> Iterator[None]:
    """Two rules in a row guard this: a worker that does not find the pin says so, too."""
    ended = replaced(pods, "abandon_evaluation", lambda state: None)
    with ended, replaced(tasks, "on_pin_lost", lambda state, event, time_s: None):
        yield


@mutation(
    "an attempt at an evaluation task begins with metrics at zero",
    protects=Protects.EXACTLY_ONCE,
    schedule=evaluation_schedule,
)
def metrics_begin_at_zero() -> Iterator[None]:
    with replaced(evaluation_tasks.Evaluation, "start", lambda self: self._read_next()):
        yield


@mutation(
    "the window of an evaluation is filled as results arrive",
    protects=Protects.LIVENESS,
    schedule=evaluation_schedule,
)
def windows_are_filled() -> Iterator[None]:
    original = TaskWindow.next_tasks

    def next_tasks(self: Any, tasks: int, size: int) -> Any:
        return () if self.frontier else original(self, tasks, size)

    with replaced(TaskWindow, "next_tasks", next_tasks):
        yield
