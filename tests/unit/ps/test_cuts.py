"""Cuts are of one moment between two pushes, also while workers push during the cut.

An earlier system copied weights and slots one after the other while pushes went on: restored, Adam divided by a second
moment that was not of its first one, and 1e38 stood in its slots.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.unit.ps.cores import core_of, wire_push
from tests.unit.ps.example import BATCHES, PLAN, spec
from tests.unit.ps_engine.chunks import chunks

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.snapshots.reader import restore
from elasticdl.ps.snapshots.uploads import UploadWriter, Written
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.model.manifests import decode_manifest
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.rows.snapshot_rows import read_chain
from elasticdl.shared.names import PodName, new_incarnation
from elasticdl.shared.storage import MemoryStore
from elasticdl.shared.wire.messages import PushVerdict

SNAPSHOTS = 12
SANE = 1e6


def everything(shard: ModelShard) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Weights, first and second moments, of the dense weights and of every row in the order of its id."""
    cut = shard.cut()
    (group,) = cut.groups
    yield group.dense.state
    yield group.dense.fixed
    for rows in cut.rows:
        found = list(chunks(rows, 1 << 20))
        ids = np.concatenate([ids for ids, _ in found]) if found else np.empty(0, np.int64)
        slabs = np.concatenate([slabs for _, slabs in found]) if found else np.empty((0, 1), np.float32)
        yield ids[np.argsort(ids)].astype(np.float32)
        yield slabs[np.argsort(ids)]
    cut.close()


def reference(step: int) -> ModelShard:
    """What a ps holds after a number of batches without a cut."""
    core = core_of("adam")
    for task, batch in BATCHES[:step]:
        core.push(wire_push(task, batch))
    assert core.shard is not None
    return core.shard


def snapshots_under_pushes(store: MemoryStore) -> list[Written]:
    """Snapshots of a chain, cut and written while another thread pushes, and a pin comes and goes."""
    core = core_of("adam")
    writer = SnapshotWriter(spec("memory://job"), PodName("ps-0"), new_incarnation())
    uploads = UploadWriter(store)
    halfway = threading.Event()
    go_on = threading.Event()

    def push_all() -> None:
        for number, (task, batch) in enumerate(BATCHES):
            assert core.push(wire_push(task, batch)).verdict is PushVerdict.APPLIED
            if number == len(BATCHES) // 2:
                halfway.set()
                go_on.wait()

    pusher = threading.Thread(target=push_all)
    pusher.start()
    taken: list[Written] = []
    for number in range(SNAPSHOTS):
        if number == SNAPSHOTS // 2:
            halfway.wait()
        if number == SNAPSHOTS // 3:
            core.open_pin(1)
        cut = core.cut(dirty_only=bool(taken), flush=False)
        go_on.set() if number == SNAPSHOTS // 2 else None  # The second half is pushed while this one is written.
        upload = writer.upload(core, cut, number=number, base=taken[-1].uri if taken else "")
        taken.append(uploads.write(upload))
        cut.close(finished=True)
    core.close_pin(1)
    go_on.set()
    pusher.join()
    uploads.close()
    return taken


def snapshots_between_pushes(store: MemoryStore) -> list[Written]:
    """Snapshots of a chain, with a push between the cut and its first object, and between any two objects."""
    core = core_of("adam")
    writer = SnapshotWriter(spec("memory://job"), PodName("ps-0"), new_incarnation())
    left = iter(BATCHES)
    taken: list[Written] = []
    for number in range(4):
        cut = core.cut(dirty_only=bool(taken), flush=False)
        objects = writer.objects(core, cut, number=number, base=taken[-1].uri if taken else "")
        while True:
            for task, batch in itertools.islice(left, 1):
                core.push(wire_push(task, batch))
            written = next(objects, None)
            if written is None:
                break
            uri, data = written
            store.write(uri, data)
        cut.close(finished=True)
        taken.append(Written(uri=uri, manifest=decode_manifest(bytes(data), uri), size_bytes=0))
    return taken


@pytest.mark.parametrize("take", [snapshots_under_pushes, snapshots_between_pushes])
def test_adams_slots_are_of_the_same_moment_as_weights_and_ledger_in_every_snapshot_under_pushes(
    take: Callable[[MemoryStore], list[Written]],
) -> None:
    store = MemoryStore()
    steps = []
    for written in take(store):
        core = PsCore(plan=PLAN, placement=Placement.even(1), number=0, policy=UpdatePolicy())
        restored = restore(store, core, read_chain(store, written.uri))
        steps.append(restored.step)
        for mine, theirs in zip(everything(restored), everything(reference(restored.step)), strict=True):
            assert np.isfinite(mine).all() and (np.abs(mine) < SANE).all()
            np.testing.assert_array_equal(mine, theirs)
    assert steps == sorted(steps)
    assert steps[-1] > len(BATCHES) // 3
