"""Mutations of evaluation: which state of the model counts as the end of an epoch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.master.core.evaluation import best, epochs
from elasticdl.master.core.training import dispatch_window
from elasticdl.shared.messages.commands import EndTraining
from elasticdl.worker.core import auxiliary_tasks
from elasticdl.worker.core.commands import SaveModel

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
