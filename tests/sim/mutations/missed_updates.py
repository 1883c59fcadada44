"""Mutations of rows that catch up or expire: what a row knows, and what moves and restores do with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from tests.sim.mutations.registry import Protects, mutation, replaced
from tests.sim.schedule import catching_up_schedule

from elasticdl.ps.engine.cuts import RowCut
from elasticdl.ps.engine.rows import RowStore
from elasticdl.ps.engine.tracked_rows import SweptRowStore, TrackedRowStore
from elasticdl.ps.shard.core import PsCore
from elasticdl.shared.model.rows.missed_updates import MissedUpdates
from elasticdl.shared.model.rows.saved_rows import SavedRows

catches_up = partial(mutation, protects=Protects.EXACTLY_ONCE, schedule=catching_up_schedule)


@catches_up("a push makes the updates that its rows have missed")
def pushes_make_missed_updates() -> Iterator[None]:
    original = RowStore._update

    def update(self: Any, row_indices: Any, gradients: Any, update: Any) -> None:
        with replaced(MissedUpdates, "make", lambda *arguments: None):
            original(self, row_indices, gradients, update)

    with replaced(RowStore, "_update", update):
        yield


@catches_up("a pull stores nothing, so the push does not make the missed updates a second time")
def pulls_store_nothing() -> Iterator[None]:
    original = RowStore.pull

    def pull(self: Any, ids: Any, out: Any) -> None:
        original(self, ids, out)
        if self.missed is not None:
            row_indices, _ = self._look_up(ids)
            stored = row_indices >= 0
            self.missed.make(self.state, row_indices[stored], self.timeline.updates_of(ids)[stored])

    with replaced(RowStore, "pull", pull):
        yield


@catches_up("rows that were never touched change, too")
def untouched_rows_change() -> Iterator[None]:
    with replaced(MissedUpdates, "moves_untouched", False):
        yield


@catches_up("a state that is kept for an evaluation has its rows as they were at its moment")
def kept_rows_catch_up_to_their_moment() -> Iterator[None]:
    original = RowCut.pull

    def pull(self: Any, ids: Any, out: Any) -> None:
        self._updates = self._store.timeline.updates.copy()
        original(self, ids, out)

    with replaced(RowCut, "pull", pull):
        yield


@catches_up("rows that move know how many updates they have missed")
def moved_rows_know_their_updates() -> Iterator[None]:
    original = PsCore.hold_rows

    def hold_rows(self: Any, move: int, store: int, ids: Any, slabs: Any, *, saved: bool) -> None:
        updates = max((group.iteration for group in self.shard.groups), default=0)
        original(self, move, store, ids, _up_to(self.shard.stores[store], slabs, updates), saved=saved)

    with replaced(PsCore, "hold_rows", hold_rows):
        yield


@catches_up("a group that moves has its number of updates")
def moved_groups_know_their_updates() -> Iterator[None]:
    original = PsCore.hold

    def hold(self: Any, move: int, cuts: Any) -> Any:
        return original(self, move, [replace(cut, iteration=cut.iteration + 1) for cut in cuts])

    with replaced(PsCore, "hold", hold):
        yield


def _restored(change: Any) -> AbstractContextManager[None]:
    """Change the shards that a ps restores when it starts; the oracle restores its own."""
    original = PsCore.install

    def install(self: Any, shard: Any) -> None:
        change(shard)
        original(self, shard)

    return replaced(PsCore, "install", install)


@catches_up("a restored row is up to the update that touched it last")
def restored_rows_know_their_updates() -> Iterator[None]:
    def forget(shard: Any) -> None:
        for store in shard.stores:
            if store.has_updates:
                store.slab_ends()[:] = shard.iteration

    with _restored(forget):
        yield


@catches_up("a restored group has its number of updates")
def restored_groups_know_their_updates() -> Iterator[None]:
    def forget(shard: Any) -> None:
        for group in shard.groups:
            group.iteration = 0
            group.note_updates()

    with _restored(forget):
        yield


@catches_up("a restored ps knows the learning rates of the updates before")
def restored_rates_are_known() -> Iterator[None]:
    with _restored(lambda shard: shard.timeline.rates.__init__()):
        yield


@catches_up("rows of earlier snapshots of a chain catch up to the last one")
def chains_have_one_moment() -> Iterator[None]:
    original = SavedRows.__init__

    def of_the_first(self: Any, signature: Any, chain: Any) -> None:
        original(self, signature, chain[:1])

    with replaced(SavedRows, "__init__", of_the_first):
        yield


@catches_up("a row that has expired starts from its initial value")
def expired_rows_start_again() -> Iterator[None]:
    with replaced(TrackedRowStore, "_renew", lambda self, ids, row_indices, old, now: np.zeros_like(old)):
        yield


@catches_up("a row that has expired counts as missing before it is removed")
def expired_rows_are_missing() -> Iterator[None]:
    with replaced(TrackedRowStore, "_leave_out_expired", lambda self, row_indices, now: 0):
        yield


@catches_up("rows are removed when they have expired, not earlier")
def only_expired_rows_are_removed() -> Iterator[None]:
    original = SweptRowStore._sweep

    def removable(self: Any, start: int, stop: int) -> Any:
        with replaced(self, "table", replace(self.table, expire_after=self.table.expire_after - 1)):
            return self._expired(start, stop)

    def sweep(self: Any, touched: int) -> None:
        with replaced(TrackedRowStore, "removable", removable):
            original(self, touched)

    with replaced(SweptRowStore, "_sweep", sweep):
        yield


def _up_to(store: Any, slabs: Any, updates: int) -> Any:
    """Slabs that say that they are up to so many updates."""
    if not store.has_updates:
        return slabs
    changed = slabs.copy()
    changed.view(np.int32)[:, -1] = updates
    return changed
