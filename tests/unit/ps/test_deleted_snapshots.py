"""Snapshots that are deleted while the job runs: the next one is full, and what is gone is not registered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.ps.controller_shell import Broker, Shell, snapshot
from tests.unit.ps.damage import delete, truncate
from tests.unit.ps.example import BATCHES

from elasticdl.shared.messages.events import PsStarted, SnapshotDamaged, SnapshotTaken
from elasticdl.shared.model.manifests import read_manifest
from elasticdl.shared.storage import MemoryStore


@pytest.mark.parametrize(
    ("damage", "name", "problem"),
    [
        (delete, "dense-0", "is missing"),
        (truncate, "dense-0", "bytes instead of"),
        (delete, "manifest", "is missing"),
    ],
)
def test_a_snapshot_does_not_build_on_what_was_deleted_while_the_job_ran(
    broker: Broker,
    store: MemoryStore,
    shell: Shell,
    damage: Callable[[MemoryStore, str], None],
    name: str,
    problem: str,
) -> None:
    initial = broker.register().manifest
    for request, batch in enumerate(BATCHES[:2], start=1):
        shell.push(*batch)
        shell.order(snapshot(request))
        shell.run()
    damage(store, initial.removesuffix("manifest") + name)
    shell.push(*BATCHES[2])
    shell.order(snapshot(3))
    shell.run()
    newest = broker.register()
    assert read_manifest(store, newest.manifest).base == ""
    assert newest.older == ()
    (told,) = broker.events(SnapshotDamaged)
    assert (told.snapshot, told.instead) == (initial, newest.manifest)
    assert problem in told.problem
    successor = Shell(broker, store)
    successor.start()
    assert broker.events(PsStarted)[-1].ledgers[0].ledger.step == 3


def test_a_snapshot_that_was_deleted_is_taken_again_although_nothing_has_changed(
    broker: Broker, store: MemoryStore, shell: Shell
) -> None:
    shell.push(*BATCHES[0])
    shell.order(snapshot(1))
    shell.run()
    deleted = broker.register().manifest
    delete(store, deleted)
    shell.order(snapshot(2))
    shell.run()
    assert broker.register().manifest == broker.events(SnapshotTaken)[-1].manifest != deleted
    assert read_manifest(store, broker.register().manifest).step == 1
