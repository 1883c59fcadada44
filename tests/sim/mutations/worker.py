"""Mutations of the worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced
from tests.sim.worker import WorkerProcess

from elasticdl.worker.ps_client import rules
from elasticdl.worker.training.pipeline import Pipeline


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
    original = Pipeline.answered

    def answered(self: Any, ticket: Any, next_batch: int) -> Any:
        return original(self, ticket, ticket.batch + 1)

    with replaced(Pipeline, "answered", answered):
        yield


@mutation("a task is acknowledged after its TaskFinished is stored", protects=Protects.LIVENESS)
def event_before_acknowledgement() -> Iterator[None]:
    original = WorkerProcess._finish

    async def finish(self: Any, deliveries: Any, **facts: Any) -> None:
        for delivery in deliveries:
            await delivery.delivery.ack()
        await original(self, deliveries, **facts)

    with replaced(WorkerProcess, "_finish", finish):
        yield
