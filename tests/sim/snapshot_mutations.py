"""Mutations of what guards against damaged snapshots and lost logs; see ``mutations.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutations import MUTATIONS
from tests.sim.mutations import _mutation as mutation
from tests.sim.mutations import _replaced as replaced
from tests.sim.ps import PsProcess

from elasticdl.master.core import runs
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import GroupCut
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots import reader as snapshot_reader
from elasticdl.ps.snapshots import recovery
from elasticdl.ps.snapshots import writer as snapshot_writer
from elasticdl.ps.snapshots.history import SnapshotHistory
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.model import manifests
from elasticdl.shared.model.manifests import DamagedError

__all__ = ["MUTATIONS"]


@mutation("every object of a snapshot is compared with its checksum before it is used")
def checksums_of_snapshots() -> Iterator[None]:
    def read_chunk(store: Any, manifest: str, chunk: Any) -> bytearray:
        return bytearray(store.read(manifests.chunk_uri(chunk.of or manifest, chunk.name)))

    with replaced(snapshot_reader, "read_chunk", read_chunk):
        yield


@mutation("the register names the older snapshots that are kept, or a ps looks for them itself")
def older_snapshots_are_found() -> Iterator[None]:
    unnamed = replaced(SnapshotHistory, "older_than", lambda self, uri, manifest: ())
    with unnamed, replaced(recovery, "choose", lambda chains, wanted: []):
        yield


@mutation("a ps that goes back to an older snapshot announces the ledger of that one")
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


@mutation("a snapshot that turns out to be damaged is built upon no more, and another one is taken in its place")
def damaged_snapshots_are_discarded() -> Iterator[None]:
    with replaced(SnapshotHistory, "discard", lambda self, uri: None):
        yield


@mutation("snapshots that a ps could fall back to are no garbage to its next life")
def fallbacks_are_no_garbage() -> Iterator[None]:
    original = snapshot_writer.SnapshotWriter.garbage

    def garbage(self: Any, kept: Any) -> Any:
        return original(self, list(kept)[-1:])

    with replaced(snapshot_writer.SnapshotWriter, "garbage", garbage):
        yield


@mutation("a task's message id names the run of the job, because dispatch numbers come again when a log lost its end")
def run_in_the_message_id() -> Iterator[None]:
    def message_id(self: Any) -> str:
        return f"{self.task.purpose.value}.{self.task.number}.{self.dispatch}"

    def note_lost_log(state: Any, time_s: float, lost: Any) -> None:
        state.lost_logs.append((time_s, lost))

    with replaced(TaskMessage, "message_id", property(message_id)), replaced(runs, "_note_lost_log", note_lost_log):
        yield


class _LateGroup:
    """A group of a cut whose ledger is that of the moment at which it is asked for."""

    def __init__(self, group: GroupCut, core: PsCore) -> None:
        self._group = group
        self._core = core

    def __getattr__(self, name: str) -> Any:
        shard = self._core.shard
        if name == "ledger" and shard is not None:
            ledgers = {group.partitions: group.ledger.record() for group in shard.groups}
            return ledgers.get(self._group.partitions, self._group.ledger)
        return getattr(self._group, name)


class _LateLedger:
    """A cut with such groups."""

    def __init__(self, cut: ShardCut, core: PsCore) -> None:
        self._cut = cut
        self._core = core

    def __getattr__(self, name: str) -> Any:
        if name == "groups":
            return tuple(_LateGroup(group, self._core) for group in self._cut.groups)
        return getattr(self._cut, name)


@mutation("weights and ledger of a snapshot are of one moment between two pushes")
def ledger_in_the_cut() -> Iterator[None]:
    original = snapshot_writer.SnapshotWriter.objects

    def objects(self: Any, core: Any, cut: Any, **facts: Any) -> Any:
        return original(self, core, _LateLedger(cut, core), **facts)  # type: ignore[arg-type]

    with replaced(snapshot_writer.SnapshotWriter, "objects", objects):
        yield
