"""Mutations of how groups move from one ps to another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.ps.controller import controller
from elasticdl.ps.controller.moves import Moves
from elasticdl.ps.moves import IncomingGroups
from elasticdl.ps.shard import core as ps_core
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots import reader as snapshot_reader
from elasticdl.ps.snapshots import recovery
from elasticdl.shared.process.procedures import Procedure

decide = sys.modules["elasticdl.master.core.decide"]


@mutation(
    "a request that was split by an earlier version of the placement is answered MOVED", protects=Protects.LIVENESS
)
def moved() -> Iterator[None]:
    """Liveness: the dense blocks of another version have other sizes, so the ps refuses the request after all.

    It refuses it as a violation of the protocol, and the job fails before anything is learned.
    """
    with replaced(ps_core, "check_version", lambda version, known: None):
        yield


@mutation("an order about a later version of the placement than is known is refused", protects=Protects.EXACTLY_ONCE)
def orders_wait_for_the_placement() -> Iterator[None]:
    with replaced(controller, "check_known", lambda command, known: None):
        yield


@mutation(
    "a repeated order to hold a copy gets its former answer",
    protects=Protects.EXACTLY_ONCE,
    scenario="an-order-to-hold-an-earlier-copy-is-repeated",
)
def later_copies_stay() -> Iterator[None]:
    with replaced(IncomingGroups, "answer_to", lambda self, request: None):
        yield


@mutation(
    "a restarted ps keeps the groups that it held until it knows the outcome, or exits when it is given what it lost",
    protects=Protects.LIVENESS,
)
def held_until_the_outcome() -> Iterator[None]:
    """Liveness: served blocks that the placement gives to another ps do not fit into the answers, so the ps crashes."""
    original = ModelShard.install

    def restored(*arguments: Any) -> Any:
        shard = snapshot_reader.restore(*arguments)
        original(shard, shard.groups)
        return shard

    unnoticed = replaced(ModelShard, "covers", lambda self, partitions: True)
    with replaced(recovery, "restore", restored), unnoticed:
        yield


@mutation(
    "what a recipient holds is in its registered snapshot before it announces GroupHeld", protects=Protects.EXACTLY_ONCE
)
def held_is_registered() -> Iterator[None]:
    def register(self: Any, move: int) -> Procedure[None]:
        yield from ()

    with replaced(Moves, "_register", register):
        yield


@mutation("a model that no single snapshot holds is gathered from several", protects=Protects.LIVENESS)
def gathered_from_several() -> Iterator[None]:
    with replaced(recovery, "choose", lambda chains, wanted: []):
        yield


@mutation("rows are loaded for a move only while its outcome is unknown", protects=Protects.EXACTLY_ONCE)
def late_rows_are_not_loaded() -> Iterator[None]:
    def hold_rows(self: Any, move: int, store: int, ids: Any, slabs: Any, *, saved: bool) -> None:
        self.shard.stores[store].load(ids, slabs, saved=saved)

    with replaced(PsCore, "hold_rows", hold_rows):
        yield


@mutation("a version of the placement ends the freeze for its move", protects=Protects.LIVENESS)
def a_version_ends_the_freeze() -> Iterator[None]:
    original = PsCore.adopt

    def adopt(self: Any, placement: Any) -> bool:
        frozen, owned = self.frozen, self.owned
        later = original(self, placement)
        self.frozen = frozen if self.owned == owned else 0
        return later

    with replaced(PsCore, "adopt", adopt):
        yield


@mutation("dropped rows do not come back from earlier snapshots of the chain", protects=Protects.EXACTLY_ONCE)
def dropped_rows_stay_dropped() -> Iterator[None]:
    original = ModelShard.cut

    def cut(self: Any, **facts: Any) -> ShardCut:
        return replace(original(self, **facts), dropped_rows=0)

    with replaced(ModelShard, "cut", cut), replaced(PsCore, "dropped_rows", property(lambda self: 0)):
        yield


@mutation("a job does not close while a move is in progress", protects=Protects.EXACTLY_ONCE)
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


@mutation("a ps drops the rows of partitions that it does not own", protects=Protects.EXACTLY_ONCE)
def rows_without_owner_are_dropped() -> Iterator[None]:
    with (
        replaced(ModelShard, "drop_some", lambda self: False),
        replaced(ModelShard, "has_undropped", property(lambda self: False)),
    ):
        yield
