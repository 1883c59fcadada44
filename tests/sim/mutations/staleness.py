"""Mutations of bounded staleness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.ps.shard.pull_admission import PullAdmission
from elasticdl.ps.shard.staleness_gate import StalenessGate
from elasticdl.worker.ps_client.calls import Order, PsCalls


@mutation("a pull waits while a batch could become too stale by it", protects=Protects.EXACTLY_ONCE)
def pulls_wait_for_outstanding_batches() -> Iterator[None]:
    with replaced(StalenessGate, "admits", lambda self, key, *, accumulated, now_s, sender: True):
        yield


@mutation("the gate gets a push last, when all other ps have absorbed it", protects=Protects.EXACTLY_ONCE)
def the_gate_is_pushed_to_last() -> Iterator[None]:
    original = PsCalls._begin

    def begin(self: Any, split: Any, order: Order = Order.TOGETHER, **options: Any) -> Any:
        return original(self, split, Order.TOGETHER if order is Order.GATE_LAST else order, **options)

    with replaced(PsCalls, "_begin", begin):
        yield


@mutation("the gate is pulled from first", protects=Protects.EXACTLY_ONCE)
def the_gate_is_pulled_from_first() -> Iterator[None]:
    original = PsCalls._begin

    def begin(self: Any, split: Any, order: Order = Order.TOGETHER, **options: Any) -> Any:
        return original(self, split, Order.TOGETHER if order is Order.GATE_FIRST else order, **options)

    with replaced(PsCalls, "_begin", begin):
        yield


@mutation("batches that wait for their update count", protects=Protects.EXACTLY_ONCE)
def accumulated_batches_count() -> Iterator[None]:
    original = StalenessGate.admits

    def admits(self: Any, key: Any, *, accumulated: int, now_s: float, sender: int) -> bool:
        return original(self, key, accumulated=0, now_s=now_s, sender=sender)

    def on_pulled(self: Any, key: Any, *, accumulated: int, now_s: float, sender: int) -> None:
        original_on_pulled(self, key, accumulated=0, now_s=now_s, sender=sender)

    original_on_pulled = StalenessGate.on_pulled
    with replaced(StalenessGate, "admits", admits), replaced(StalenessGate, "on_pulled", on_pulled):
        yield


@mutation("other batches may wait for their update on other ps", protects=Protects.EXACTLY_ONCE)
def other_ps_accumulate_other_batches() -> Iterator[None]:
    with replaced(PullAdmission, "_accumulated", lambda self, shard: shard.accumulated):
        yield


@mutation("a pull does not wait for a batch that is overdue", protects=Protects.LIVENESS)
def overdue_batches_are_ignored() -> Iterator[None]:
    with replaced(StalenessGate, "_is_overdue", lambda self, batch, now_s: False):
        yield
