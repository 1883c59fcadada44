"""Mutations of crediting: which finished tasks the master believes, and on whose word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.master.core.training import state as training
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.events import Envelope


@mutation(
    "a task is credited to a ps only under its present incarnation",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-ps-restarts-before-a-task-is-reported",
)
def credit_by_incarnation() -> Iterator[None]:
    original = training.Training.on_task_finished

    def on_task_finished(self: Any, event: Any, envelope: Envelope, placement_version: int) -> bool:
        present = {ps: credit.incarnation for ps, credit in self.credits.items() if credit.incarnation}
        self.ps_sets[event.absorbed_by] = present
        return original(self, event, envelope, placement_version)

    with replaced(training.Training, "on_task_finished", on_task_finished):
        yield


@mutation("PsStarted replaces what was credited to the ps", protects=Protects.EXACTLY_ONCE)
def ps_started_replaces_credit() -> Iterator[None]:
    original = training.Training.on_ps_started

    def on_ps_started(self: Any, ps: Any, incarnation: Any, finished: Any) -> None:
        kept = finished.copy()
        if ps in self.credits:
            kept = kept.union(self.credited_to(ps))
        original(self, ps, incarnation, kept)

    with replaced(training.Training, "on_ps_started", on_ps_started):
        yield


@mutation("a task that was finished under a former incarnation is dispatched again", protects=Protects.LIVENESS)
def lost_credit_is_dispatched_again() -> Iterator[None]:
    original = training.Training.on_task_finished

    def on_task_finished(self: Any, event: Any, envelope: Envelope, placement_version: int) -> bool:
        lacking = set(self.lacking)
        outstanding = set(self.outstanding)
        completed = original(self, event, envelope, placement_version)
        if not completed:
            self.lacking, self.outstanding = lacking, outstanding
        return completed

    with replaced(training.Training, "on_task_finished", on_task_finished):
        yield


@mutation("a group that moves to a ps takes away the credit for what it lacks", protects=Protects.EXACTLY_ONCE)
def credit_follows_the_group() -> Iterator[None]:
    original = training.Training.on_partitions_moved

    def on_partitions_moved(
        self: Any, donor: Any, recipient: Any, incarnation: Any, held: Any, *, is_last: bool
    ) -> None:
        everything = RangeSet([(0, self.plan.tasks)])
        original(self, donor, recipient, incarnation, everything, is_last=is_last)

    with replaced(training.Training, "on_partitions_moved", on_partitions_moved):
        yield


@mutation(
    "a task is credited only if all ps answered by the present version of the placement", protects=Protects.EXACTLY_ONCE
)
def credit_by_version() -> Iterator[None]:
    original = training.Training.on_task_finished

    def on_task_finished(self: Any, event: Any, envelope: Envelope, placement_version: int) -> bool:
        return original(self, event, envelope, event.placement_version)

    with replaced(training.Training, "on_task_finished", on_task_finished):
        yield
