"""Mutations of the ps' controller: the order of its steps. Those that patch `tests.sim.ps` patch a double still."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced
from tests.sim.ps import PsProcess

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.model import manifests
from elasticdl.shared.model.manifests import DamagedError


@mutation("a ps serves nothing before its start is on the log", protects=Protects.LIVENESS)
def not_ready_before_the_record() -> Iterator[None]:
    original = PsCore._serving

    def serving(self: Any, placement_version: int) -> ModelShard:
        ready, self._ready = self._ready, True
        try:
            return original(self, placement_version)
        finally:
            self._ready = ready

    with replaced(PsCore, "_serving", serving):
        yield


@mutation(
    "a ps deletes snapshots only after it has confirmed that the register is still its own",
    protects=Protects.EXACTLY_ONCE,
)
def name_confirmed_before_deleting() -> Iterator[None]:
    async def confirm(self: Any) -> None:
        return

    with replaced(PsProcess, "_confirm", confirm):
        yield


@mutation("a ps that falls back to an older snapshot announces the ledger of that one", protects=Protects.EXACTLY_ONCE)
def ledger_of_the_snapshot_that_is_used() -> Iterator[None]:
    original = PsProcess._restore

    async def restore(self: Any) -> Any:
        newest = self._register.manifest
        used, ledgers = await original(self)
        try:
            return used, manifests.read_manifest(self.world.store, newest).ledgers
        except DamagedError:
            return used, ledgers

    with replaced(PsProcess, "_restore", restore):
        yield
