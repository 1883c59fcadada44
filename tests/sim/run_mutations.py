"""Mutations of what keeps the runs of a job apart, and what the end of one leaves; see ``mutations.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from tests.sim import master
from tests.sim.broker import Log
from tests.sim.move_mutations import MUTATIONS
from tests.sim.mutations import _mutation as mutation
from tests.sim.mutations import _replaced as replaced

from elasticdl.cli.recovery.snapshot_recovery import salvage, settle_placement
from elasticdl.ps.shard.model_shard import ModelShard, standings_of
from elasticdl.ps.snapshots import next_cut, recovery
from elasticdl.ps.snapshots import writer as snapshot_writer
from elasticdl.shared.model.manifests import folder_of

__all__ = ["MUTATIONS"]

evolve = sys.modules["elasticdl.master.core.evolve"]


@mutation("what a launcher says counts in the run that it has opened, and in no other")
def words_of_former_launchers() -> Iterator[None]:
    with replaced(evolve, "_is_of_former_run", lambda state, envelope: False):
        yield


@mutation("the first word of a run is the next record of the log that its launcher has read, or it is not stored")
def a_run_is_opened_behind_everything() -> Iterator[None]:
    with replaced(Log, "append_next", lambda self, envelope, after: self.append(envelope)):
        yield


@mutation("a placement that a lost end of the log had published is replaced, even if no snapshot is of it")
def published_placement_is_replaced() -> Iterator[None]:
    async def settle(registers: Any, store: Any, spec: Any, salvaged: Any, lost: Any, now_s: float) -> Any:
        found = salvaged or salvage(store, spec.storage, spec.job)
        if found is None or found.placement.version == 1:
            return None
        return await settle_placement(registers, store, spec, salvaged, lost, now_s)

    with replaced(master, "settle_placement", settle):
        yield


@mutation("a state that was flushed differs from the one before, so it is saved although no batch came")
def a_flush_is_saved() -> Iterator[None]:
    original = ModelShard.standings

    def standings(self: Any) -> Any:
        return _without_updates(original.fget(self))  # type: ignore[attr-defined]

    saved = replaced(next_cut, "standings_of", lambda groups: _without_updates(standings_of(groups)))
    with replaced(ModelShard, "standings", property(standings)), saved:
        yield


def _without_updates(standings: Any) -> Any:
    return tuple((*standing[:-1], 0) for standing in standings)


@mutation("copies that a snapshot refers to are no garbage")
def copies_are_no_garbage() -> Iterator[None]:
    unkept = replaced(snapshot_writer, "folders_of", lambda uri, manifest: {folder_of(uri)})
    with unkept, replaced(recovery, "choose", lambda chains, wanted: []):
        yield
