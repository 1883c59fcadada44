"""Mutations of evaluation: which state of the model counts as the end of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.master.core.evaluation import epochs
from elasticdl.master.core.training import dispatch_window


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
