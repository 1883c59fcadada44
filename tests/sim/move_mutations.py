"""Mutations of the rules by which groups move, added to those of ``mutations.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.sim import ps_moves
from tests.sim.mutations import _mutation as mutation
from tests.sim.mutations import _replaced as replaced
from tests.sim.snapshot_mutations import MUTATIONS

from elasticdl.master.core.training import bookkeeping as training
from elasticdl.ps.shard import core as ps_core
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import Group
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots import reader as snapshot_reader
from elasticdl.ps.snapshots import recovery
from elasticdl.shared.job.rangeset import RangeSet

__all__ = ["MUTATIONS"]

decide = sys.modules["elasticdl.master.core.decide"]


@mutation("a request that was split by an earlier version of the placement is answered MOVED")
def moved() -> Iterator[None]:
    with replaced(ps_core, "check_version", lambda version, known: None):
        yield


@mutation("an order about a later version of the placement than is known is refused")
def orders_wait_for_the_placement() -> Iterator[None]:
    with replaced(sys.modules["tests.sim.ps"], "check_known", lambda command, known: None):
        yield


@mutation("a group that comes to a ps takes away the credit for what it lacks")
def credit_follows_the_group() -> Iterator[None]:
    original = training.Training.note_move

    def note_move(self: Any, donor: Any, recipient: Any, incarnation: Any, held: Any, *, is_last: bool) -> None:
        everything = RangeSet([(0, self.plan.tasks)])
        original(self, donor, recipient, incarnation, everything, is_last=is_last)

    with replaced(training.Training, "note_move", note_move):
        yield


@mutation("a task is credited only if all ps answered by the present version of the placement")
def credit_by_version() -> Iterator[None]:
    original = training.Training.note_finished

    def note_finished(self: Any, event: Any, time_s: float, placement_version: int) -> bool:
        return original(self, event, time_s, event.placement_version)

    with replaced(training.Training, "note_finished", note_finished):
        yield


@mutation("a restarted ps keeps what it held until it has heard of the outcome, or ends when it is given what it lost")
def held_until_the_outcome() -> Iterator[None]:
    original = ModelShard.install

    def restored(*arguments: Any) -> Any:
        shard = snapshot_reader.restore(*arguments)
        original(shard, shard.groups)
        return shard

    unnoticed = replaced(ModelShard, "covers", lambda self, partitions: True)
    with replaced(recovery, "restore", restored), unnoticed:
        yield


@mutation("what a recipient holds is in its registered snapshot before it says so")
def held_is_registered() -> Iterator[None]:
    async def register_held(ps: Any, move: int) -> None:
        pass

    with replaced(ps_moves, "register_held", register_held):
        yield


@mutation("what no single snapshot has is gathered from several")
def gathered_from_several() -> Iterator[None]:
    with replaced(recovery, "choose", lambda chains, wanted: []):
        yield


@mutation("rows are loaded for a move only as long as its outcome is unknown")
def late_rows_are_not_loaded() -> Iterator[None]:
    def hold_rows(self: Any, move: int, table: int, ids: Any, slabs: Any, *, saved: bool) -> None:
        self.shard.tables[table].load(ids, slabs, saved=saved)

    with replaced(PsCore, "hold_rows", hold_rows):
        yield


@mutation("a version of the placement ends the freeze for its move")
def a_version_ends_the_freeze() -> Iterator[None]:
    original = PsCore.adopt

    def adopt(self: Any, placement: Any) -> bool:
        frozen, owned = self.frozen, self.owned
        later = original(self, placement)
        self.frozen = frozen if self.owned == owned else 0
        return later

    with replaced(PsCore, "adopt", adopt):
        yield


@mutation("what was dropped does not come back from earlier snapshots of the chain")
def dropped_rows_stay_dropped() -> Iterator[None]:
    original = ModelShard.cut

    def cut(self: Any, **facts: Any) -> ShardCut:
        return replace(original(self, **facts), dropped_rows=0)

    with replaced(ModelShard, "cut", cut), replaced(PsCore, "dropped_rows", property(lambda self: 0)):
        yield


@mutation("a job does not close while a move is under way")
def closing_waits_for_the_move() -> Iterator[None]:
    original = decide.decide_closing

    def decide_closing(state: Any) -> Any:
        move, state.move = state.move, None
        try:
            return original(state)
        finally:
            state.move = move

    with replaced(decide, "decide_closing", decide_closing):
        yield


@mutation("groups of a ps become one only when they have the same history")
def only_equal_groups_merge() -> Iterator[None]:
    with replaced(Group, "has_history_of", lambda self, other: self.move == other.move):
        yield


@mutation("each group of a ps judges a batch by its own ledger")
def each_group_has_its_ledger() -> Iterator[None]:
    original = ModelShard.divide

    def divide(self: Any, push: Any) -> Any:
        divisions = original(self, push)
        return [replace(division, verdict=divisions[0].verdict) for division in divisions]

    with replaced(ModelShard, "divide", divide):
        yield


@mutation("rows of partitions that are nobody's here are dropped")
def rows_of_nobody_are_dropped() -> Iterator[None]:
    with (
        replaced(ModelShard, "drop_some", lambda self: False),
        replaced(ModelShard, "has_undropped", property(lambda self: False)),
    ):
        yield
