"""Mutations of the ps' model state: ledgers, groups and the validation of pushes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.ps.shard.group import Group
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.job.ledger import Ledger, Verdict


@mutation("a batch that was absorbed before changes nothing", protects=Protects.EXACTLY_ONCE)
def duplicates_apply_nothing() -> Iterator[None]:
    def judge(self: Any, task: Any, batch: int, batches: int) -> Verdict:
        return Verdict.APPLIED if batch <= self.next_batch(task, batches) else Verdict.GAP

    with replaced(Ledger, "judge", judge):
        yield


@mutation("a batch that comes before its predecessor is refused", protects=Protects.EXACTLY_ONCE)
def gaps_are_refused() -> Iterator[None]:
    def judge(self: Any, task: Any, batch: int, batches: int) -> Verdict:
        return Verdict.APPLIED if batch >= self.next_batch(task, batches) else Verdict.DUPLICATE

    with replaced(Ledger, "judge", judge):
        yield


@mutation("a push is validated whole before anything changes", protects=Protects.EXACTLY_ONCE)
def whole_push_validation() -> Iterator[None]:
    original = Group.apply

    def check(self: Any, push: Any) -> None:
        self.dense.check(push.dense) if not push.empty else None

    def apply(self: Any, push: Any) -> None:
        sound = tuple(table for table in push.tables if table.gradients.sum() == table.gradients.sum())
        original(self, replace(push, tables=sound))

    with replaced(Group, "check", check), replaced(Group, "apply", apply):
        yield


@mutation("groups of a ps merge only when they have absorbed the same batches", protects=Protects.EXACTLY_ONCE)
def only_equal_groups_merge() -> Iterator[None]:
    with replaced(Group, "may_merge", lambda self, other: self.move == other.move):
        yield


@mutation(
    "each group of a ps judges a batch by its own ledger",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-recipient-is-killed-after-it-deleted-garbage",
)
def each_group_has_its_ledger() -> Iterator[None]:
    original = ModelShard.divide

    def divide(self: Any, push: Any) -> Any:
        divisions = original(self, push)
        return [replace(division, verdict=divisions[0].verdict) for division in divisions]

    with replaced(ModelShard, "divide", divide):
        yield
