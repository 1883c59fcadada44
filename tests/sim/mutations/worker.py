"""Mutations of the worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.worker.core.batch_order import BatchOrder
from elasticdl.worker.core.commands import AckTask
from elasticdl.worker.core.task_outcomes import TaskOutcomes
from elasticdl.worker.ps_client import rules


@mutation("a worker continues at the least next batch of all groups", protects=Protects.LIVENESS)
def minimum_over_groups() -> Iterator[None]:
    outcome_of, progress_of = rules.outcome_of, rules.progress_of

    def outcome(replies: Any, lives: Any, version: int) -> Any:
        return replace(
            outcome_of(replies, lives, version), next_batch=max(reply.next_batch for reply in replies.values())
        )

    def progress(replies: Any, lives: Any, version: int) -> Any:
        return replace(
            progress_of(replies, lives, version), next_batch=max(reply.next_batch for reply in replies.values())
        )

    with replaced(rules, "outcome_of", outcome), replaced(rules, "progress_of", progress):
        yield


@mutation("the reply to a push, not the push itself, sets the progress of a task", protects=Protects.EXACTLY_ONCE)
def replies_set_task_progress() -> Iterator[None]:
    original = BatchOrder.answered

    def answered(self: Any, ref: Any, next_batch: int) -> Any:
        return original(self, ref, ref.batch + 1)

    with replaced(BatchOrder, "answered", answered):
        yield


@mutation("a task is acknowledged after its TaskFinished is stored", protects=Protects.LIVENESS)
def event_before_acknowledgement() -> Iterator[None]:
    finish, drop = TaskOutcomes.finish, TaskOutcomes.drop

    def early(original: Any) -> Any:
        def outcome(self: Any, leases: Any, *arguments: Any, **facts: Any) -> Any:
            for lease in leases:
                self._effects.issue(AckTask(lease=lease))
            yield from original(self, leases, *arguments, **facts)

        return outcome

    with (
        replaced(TaskOutcomes, "finish", early(finish)),
        replaced(TaskOutcomes, "drop", early(drop)),
        replaced(TaskOutcomes, "_acknowledge", lambda self, leases: None),
    ):
        yield
