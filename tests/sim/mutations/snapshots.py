"""Mutations of snapshots: what a cut holds, what is kept, and what is read back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.ps import executors
from elasticdl.ps.engine.accumulator import Accumulator
from elasticdl.ps.engine.cuts import RowCut
from elasticdl.ps.engine.dense import DenseCut, DenseStore
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import Group, GroupCut
from elasticdl.ps.shard.model_shard import ModelShard, versions_of
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots import history, next_cut, recovery
from elasticdl.ps.snapshots import reader as snapshot_reader
from elasticdl.ps.snapshots import writer as snapshot_writer
from elasticdl.ps.snapshots.history import SnapshotHistory
from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.model import manifests
from elasticdl.shared.model.manifests import folder_of
from elasticdl.shared.model.rows import snapshot_rows
from elasticdl.shared.model.signature import ModelSignature


def deletions_unnoticed() -> AbstractContextManager[None]:
    """Let no ps look whether its snapshots are still there: it would replace what the broken rule deletes."""
    return replaced(executors, "find_damages", lambda store, folder, snapshots: {})


@mutation("a cut copies the dense weights", protects=Protects.EXACTLY_ONCE)
def dense_weights_in_the_cut() -> Iterator[None]:
    def cut(self: Any) -> DenseCut:
        return DenseCut(state=self._state, fixed=self._fixed)

    original = Group.cut

    def group_cut(self: Any, **facts: Any) -> GroupCut:
        made = original(self, **facts)
        return replace(made, dense=cut(self.dense))

    with replaced(DenseStore, "cut", cut), replaced(Group, "cut", group_cut):
        yield


@mutation("the old values of rows that change after a cut are kept for it", protects=Protects.EXACTLY_ONCE)
def copy_on_write_of_rows() -> Iterator[None]:
    with replaced(RowCut, "save_aside", lambda self, slots: None):
        yield


@mutation("a cut holds the half-filled accumulator", protects=Protects.EXACTLY_ONCE)
def accumulator_in_the_cut() -> Iterator[None]:
    original = Accumulator.state

    def state(self: Any) -> Any:
        return replace(original(self), weight=0)

    original_take = Accumulator.take

    def take(self: Any) -> Any:
        with replaced(Accumulator, "state", original):
            return original_take(self)

    with replaced(Accumulator, "state", state), replaced(Accumulator, "take", take):
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


@mutation("weights and ledger of a snapshot are of one moment between two pushes", protects=Protects.EXACTLY_ONCE)
def ledger_in_the_cut() -> Iterator[None]:
    original = snapshot_writer.SnapshotWriter.objects

    def objects(self: Any, core: Any, cut: Any, **facts: Any) -> Any:
        return original(self, core, _LateLedger(cut, core), **facts)  # type: ignore[arg-type]

    with replaced(snapshot_writer.SnapshotWriter, "objects", objects):
        yield


@mutation("the ledger is restored together with the weights", protects=Protects.EXACTLY_ONCE)
def ledger_restored_with_the_weights() -> Iterator[None]:
    original = snapshot_reader.read_groups

    def read_groups(*arguments: Any) -> Any:
        return [replace(cut, ledger=Ledger().record()) for cut in original(*arguments)]

    with replaced(snapshot_reader, "read_groups", read_groups):
        yield


@mutation("rows count as saved only when their snapshot is registered", protects=Protects.EXACTLY_ONCE)
def dirty_until_registered() -> Iterator[None]:
    original = ShardCut.close

    def close(self: Any, *, finished: bool = False) -> None:
        original(self, finished=True)

    with replaced(ShardCut, "close", close):
        yield


@mutation("the snapshots that a kept snapshot builds on are kept", protects=Protects.EXACTLY_ONCE)
def whole_chains_are_kept() -> Iterator[None]:
    with replaced(history, "_kept", lambda complete, chains_kept: complete[-chains_kept:]):
        yield


@mutation(
    "every object of a snapshot is compared with its checksum before it is used",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-bit-of-a-snapshot-flips",
)
def checksums_of_snapshots() -> Iterator[None]:
    def read_chunk(store: Any, manifest: str, chunk: Any) -> bytearray:
        return bytearray(store.read(manifests.chunk_uri(chunk.of or manifest, chunk.name)))

    with replaced(snapshot_reader, "read_chunk", read_chunk):
        yield


@mutation(
    "the register names the older snapshots that are kept, or a ps searches for them itself", protects=Protects.LIVENESS
)
def older_snapshots_are_found() -> Iterator[None]:
    unnamed = replaced(SnapshotHistory, "older_than", lambda self, uri, manifest: ())
    with unnamed, replaced(recovery, "choose", lambda chains, wanted: []):
        yield


@mutation(
    "a damaged snapshot gets no increments any more, and another one is taken in its place", protects=Protects.LIVENESS
)
def damaged_snapshots_are_discarded() -> Iterator[None]:
    with replaced(SnapshotHistory, "discard", lambda self, uri: None):
        yield


@mutation("a restarted ps does not delete snapshots that it could fall back to", protects=Protects.EXACTLY_ONCE)
def fallbacks_are_not_garbage() -> Iterator[None]:
    original = executors.garbage

    def newest_only(store: Any, folder: str, kept: Any) -> Any:
        return original(store, folder, list(kept)[-1:])

    with replaced(executors, "garbage", newest_only), deletions_unnoticed():
        yield


@mutation(
    "a state that was flushed differs from the one before, so it is saved although no batch came",
    protects=Protects.EXACTLY_ONCE,
    scenario="storage-is-away-for-a-flushed-final-snapshot",
)
def a_flush_is_saved() -> Iterator[None]:
    original = ModelShard.versions

    def versions(self: Any) -> Any:
        return _without_updates(original.fget(self))  # type: ignore[attr-defined]

    changed_since = PsCore.changed_since

    def changed(self: Any, versions: Any, *, flush: bool) -> bool:
        return changed_since(self, versions, flush=False)

    saved = replaced(next_cut, "versions_of", lambda groups: _without_updates(versions_of(groups)))
    with replaced(ModelShard, "versions", property(versions)), saved, replaced(PsCore, "changed_since", changed):
        yield


def _without_updates(versions: Any) -> Any:
    return tuple((*version[:-1], 0) for version in versions)


@mutation(
    "copies that a snapshot refers to are not garbage",
    protects=Protects.LIVENESS,
    scenario="a-recipient-is-killed-after-it-deleted-garbage",
)
def copies_are_not_garbage() -> Iterator[None]:
    unkept = replaced(executors, "folders_of", lambda uri, manifest: {folder_of(uri)})
    with unkept, replaced(recovery, "choose", lambda chains, wanted: []):
        yield


@mutation(
    "ids that wait for their rows are restored with their counts",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-ps-dies-while-ids-wait-for-their-rows",
)
def counts_of_ids_are_restored() -> Iterator[None]:
    original = snapshot_rows.read_rows

    def read_rows(store: Any, chain: Any, partitions: Any) -> Any:
        chain = list(chain)
        tables = len(ModelSignature.from_json(chain[-1][1].signature).tables) if chain else 0
        return (rows for rows in original(store, chain, partitions) if rows[1] < tables)

    with replaced(snapshot_reader, "read_rows", read_rows):
        yield


@mutation(
    "the figures of a table are restored with its rows",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-ps-dies-while-ids-wait-for-their-rows",
)
def figures_of_tables_are_restored() -> Iterator[None]:
    with replaced(snapshot_reader, "_tallies", lambda store, uri, chunks, like: like * 0):
        yield
