"""Mutations of the ps' controller: the order of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced
from tests.sim.mutations.snapshots import deletions_unnoticed

from elasticdl.ps.controller.commands import AdoptPlacement, ReadChain, StartServing
from elasticdl.ps.controller.controller import PsController
from elasticdl.ps.controller.registration import Registration
from elasticdl.ps.controller.snapshots import Snapshots
from elasticdl.ps.controller.startup import Startup
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.snapshots import job_recovery, recovery
from elasticdl.ps.snapshots.uploads import SnapshotUpload
from elasticdl.shared.model.manifests import DamagedError
from elasticdl.shared.process.procedures import Procedure


@mutation("a ps serves nothing before its start is on the log", protects=Protects.LIVENESS)
def not_ready_before_the_record() -> Iterator[None]:
    original = PsCore.serving

    def serving(self: Any, placement_version: int) -> ModelShard:
        ready, self._ready = self._ready, True
        try:
            return original(self, placement_version)
        finally:
            self._ready = ready

    with replaced(PsCore, "serving", serving):
        yield


@mutation("a snapshot is announced only after it is registered", protects=Protects.EXACTLY_ONCE)
def registered_before_announced() -> Iterator[None]:
    publish, announce = Registration.publish, Snapshots.announce
    late: dict[int, tuple[Any, ...]] = {}

    def publish_later(self: Any, *arguments: Any) -> Procedure[None]:
        late[id(self)] = arguments
        yield from ()

    def announce_and_publish(self: Any) -> Procedure[None]:
        yield from announce(self)
        if arguments := late.pop(id(self._registration), ()):
            yield from publish(self._registration, *arguments)

    with replaced(Registration, "publish", publish_later), replaced(Snapshots, "announce", announce_and_publish):
        yield


@mutation(
    "a ps deletes snapshots only after it has confirmed that the register is still its own",
    protects=Protects.EXACTLY_ONCE,
)
def name_confirmed_before_deleting() -> Iterator[None]:
    def confirm(self: Any) -> Procedure[None]:
        yield from ()

    with replaced(Registration, "confirm", confirm), deletions_unnoticed():
        yield


@mutation("a ps that falls back to an older snapshot announces the ledger of that one", protects=Protects.EXACTLY_ONCE)
def ledger_of_the_snapshot_that_is_used() -> Iterator[None]:
    original = Startup._restore

    def restore(self: Any, register: Any) -> Procedure[Any]:
        used, ledgers = yield from original(self, register)
        try:
            chain = yield ReadChain(uri=register.manifest)
        except DamagedError:
            return used, ledgers
        return used, chain[-1][1].ledgers

    with replaced(Startup, "_restore", restore):
        yield


@mutation("a ps adopts the published placement before it restores its snapshot", protects=Protects.LIVENESS)
def placement_before_restore() -> Iterator[None]:
    original = Startup.run

    def run(self: Any) -> Procedure[None]:
        procedure, result = original(self), None
        while True:
            try:
                command = procedure.send(result)
            except StopIteration:
                return
            result = None if isinstance(command, AdoptPlacement) else (yield command)

    with replaced(Startup, "run", run):
        yield


@mutation(
    "a ps serves its initial weights only after they are registered",
    protects=Protects.LIVENESS,
    scenario="storage-is-away-for-the-first-snapshot",
)
def initial_weights_are_registered_before_served() -> Iterator[None]:
    original = Snapshots.take_first

    def take_first(self: Any) -> Procedure[None]:
        yield StartServing()
        yield from original(self)

    with replaced(Snapshots, "take_first", take_first):
        yield


@mutation(
    "a snapshot's manifest is written after all of its objects, or another snapshot is found",
    protects=Protects.LIVENESS,
    scenario="a-job-is-lost-while-a-snapshot-is-written",
)
def manifest_after_its_objects() -> Iterator[None]:
    original = SnapshotUpload.next_object

    def next_object(self: Any) -> Any:
        if not hasattr(self, "mutated"):
            self.mutated = []
            while self.written is None:
                self.mutated.append(original(self))
            self.mutated.insert(0, self.mutated.pop())
            self.complete, self.written = self.written, None
        if len(self.mutated) == 1:
            self.written = self.complete
        return self.mutated.pop(0)

    def newest_only(snapshots: Any) -> Any:
        return replace(register_of(snapshots), older=())

    register_of = job_recovery._register
    no_other = replaced(job_recovery, "_register", newest_only), replaced(recovery, "choose", lambda chains, wanted: [])
    with replaced(SnapshotUpload, "next_object", next_object), no_other[0], no_other[1]:
        yield


@mutation("a snapshot that the store or the broker did not take is tried again", protects=Protects.LIVENESS)
def failed_snapshots_are_tried_again() -> Iterator[None]:
    original = PsController._attend

    def attend(self: Any) -> Procedure[None]:
        yield from original(self)
        if self._retry_at_s > self._snapshots.now_s and self._orders:
            self._orders.popleft()

    with replaced(PsController, "_attend", attend):
        yield
