"""Groups move between ps while a worker pushes: nothing is lost, nothing is learned twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.ps.damage import flip
from tests.unit.ps.example import BATCHES, PLAN, initial_dense, push_of, signature, spec
from tests.unit.ps.jobs import Job
from tests.unit.ps.servers import weights

from elasticdl.ps.service import PsService
from elasticdl.ps.shard.regrouping import union
from elasticdl.ps.snapshots.recovery import NothingLeftError
from elasticdl.ps.snapshots.references import is_copy_for
from elasticdl.shared.errors import PermanentError, TransientError
from elasticdl.shared.messages.commands import HoldGroup, OpenPin, TakeSnapshot
from elasticdl.shared.messages.events import GroupHeld, ModelInitialised, PsStarted, SnapshotDamaged, SnapshotTaken
from elasticdl.shared.model.manifests import ChunkPart, Manifest, chunk_uri, encode_manifest, folder_of, read_manifest
from elasticdl.shared.model.placement import ALL, PARTITIONS, Placement, Ranges
from elasticdl.shared.names import PodName, TaskId
from elasticdl.shared.storage import MemoryStore
from elasticdl.worker.ps_client import PsClient

PS_0, PS_1 = PodName("ps-0"), PodName("ps-1")
LAST = TaskId(PLAN.tasks - 1)
HALF: Ranges = ((128, 256),)
MakeJob = Callable[..., tuple[Job, PsClient]]


@pytest.fixture
def make_job() -> Iterator[MakeJob]:
    jobs: list[Job] = []

    def make(optimizer: str = "adam", grads_to_wait: int = 1) -> tuple[Job, PsClient]:
        job = Job(spec("memory://job", grads_to_wait=grads_to_wait), MemoryStore())
        jobs.append(job)
        job.start()
        client = job.client(signature(optimizer))
        client.initialise(initial_dense())
        job.await_event(ModelInitialised)
        return job, client

    yield make
    for job in jobs:
        job.close()


class Mover:
    """Does by hand what the master orders."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.placement = Placement.even(1)
        self.requests = 0

    def copy(
        self,
        donor: int,
        recipient: int,
        partitions: Ranges,
        move: int,
        *,
        freeze: bool,
        change: Callable[[Manifest], Manifest] = lambda manifest: manifest,
    ) -> GroupHeld:
        """Copy and hold; ``change``: what happens to the manifest of the copy before it is read."""
        self.requests += 1
        request = self.requests
        order = TakeSnapshot(
            ps=PodName(f"ps-{donor}"),
            request=request,
            reason="move",
            move=move,
            freeze=freeze,
            recipient=PodName(f"ps-{recipient}"),
            partitions=partitions,
        )
        self.job.order(order, donor)
        manifest = self.job.await_event(SnapshotTaken, where=lambda taken: taken.request == request).manifest
        self.job.store.write(manifest, encode_manifest(change(read_manifest(self.job.store, manifest))))
        hold = HoldGroup(
            ps=PodName(f"ps-{recipient}"),
            move=move,
            partitions=partitions,
            manifest=manifest,
            donor=PodName(f"ps-{donor}"),
            version=self.placement.version,
        )
        self.job.order_again(hold, recipient)
        return self.job.await_event(GroupHeld, where=lambda held: (held.move, held.manifest) == (move, manifest))

    def end(self, move: int, *, to: int = 0, partitions: Ranges = ()) -> None:
        self.placement = self.placement.moved(partitions, to=to, version=move)
        self.job.publish(self.placement)

    def move(self, donor: int, recipient: int, partitions: Ranges, move: int) -> None:
        self.copy(donor, recipient, partitions, move, freeze=False)
        held = self.copy(donor, recipient, partitions, move, freeze=True)
        assert held.failure == ""
        self.end(move, to=recipient, partitions=partitions)


def training_with_a_second_ps(make_job: MakeJob) -> tuple[Job, PsClient, Mover, PsService]:
    """A job that has learned four batches, and a ps beside the one that has its model."""
    job, client = make_job()
    second = job.start(1)
    job.await_event(PsStarted, 2)
    train(client, BATCHES[:4])
    return job, client, Mover(job), second


def final(job: Job, number: int, request: int) -> Manifest:
    version = job.placement().version
    order = TakeSnapshot(ps=PodName(f"ps-{number}"), request=request, reason="final", flush=True, version=version)
    job.order_again(order, number)
    return read_manifest(job.store, job.await_event(SnapshotTaken, where=lambda one: one.request == request).manifest)


def memory(job: Job) -> MemoryStore:
    assert isinstance(job.store, MemoryStore)
    return job.store


def train(client: PsClient, batches: Sequence[tuple[int, int]]) -> None:
    for task, batch in batches:
        outcome = client.push(push_of(task, batch))
        assert (outcome.next_batch, outcome.not_finite) == (batch + 1, "")


@pytest.mark.parametrize("grads_to_wait", [1, 4])
def test_half_a_model_moves_there_and_back_while_it_trains(make_job: MakeJob, grads_to_wait: int) -> None:
    job, client = make_job(grads_to_wait=grads_to_wait)
    reference_job, reference = make_job(grads_to_wait=grads_to_wait)
    mover = Mover(job)
    job.start(1)
    job.await_event(PsStarted, 2)
    train(client, BATCHES[:5])
    pushing = threading.Thread(target=train, args=(client, BATCHES[5:15]))
    pushing.start()
    mover.move(0, 1, HALF, 2)
    pushing.join()
    train(client, BATCHES[15:17])
    assert set(client.next_batch(LAST, PLAN.batches_of(LAST)).credits) == {PS_0, PS_1}
    pushing = threading.Thread(target=train, args=(client, BATCHES[17:]))
    pushing.start()
    mover.move(1, 0, HALF, 3)
    pushing.join()
    assert set(client.next_batch(LAST, PLAN.batches_of(LAST)).credits) == {PS_0}
    train(reference, BATCHES)
    manifest, expected = final(job, 0, 100), final(reference_job, 0, 100)
    assert all(group.ledger == expected.groups[0].ledger for group in manifest.groups)
    for mine, theirs in zip(weights(client), weights(reference), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert [group.partitions for group in manifest.groups] == [ALL], "equal histories are one group"


def test_metric_sums_move_with_partition_0(make_job: MakeJob) -> None:
    job, client, mover, _ = training_with_a_second_ps(make_job)
    states = np.array([1.0, 0.5])
    client.push(replace(push_of(*BATCHES[4]), metric_states=states))
    mover.move(0, 1, ((0, PARTITIONS // 2),), 2)
    assert job.placement().gate == 1
    client.push(replace(push_of(*BATCHES[5]), metric_states=states))
    found = client.read_metrics(0)
    assert (found.batches, np.frombuffer(found.states).tolist()) == (6, [2.0, 1.0])


def test_a_move_that_is_given_up_leaves_everything_where_it_was(make_job: MakeJob) -> None:
    job, client = make_job()
    mover = Mover(job)
    recipient = job.start(1)
    job.await_event(PsStarted, 2)
    train(client, BATCHES[:3])
    mover.copy(0, 1, HALF, 2, freeze=True)
    pushing = threading.Thread(target=train, args=(client, BATCHES[3:6]))
    pushing.start()
    assert recipient.core.shard is not None
    assert [group.partitions for group in recipient.core.shard.held] == [HALF]
    mover.end(2)
    pushing.join()
    final(job, 0, 50)
    order = TakeSnapshot(ps=PS_1, request=51, reason="test", version=2)
    while True:
        try:
            job.order(order, 1)
            break
        except PermanentError:
            continue
    assert recipient.core.shard.held == [], "what was held for nothing is dropped"
    while recipient.core.shard.rows:
        job.register(1)
    mover.move(0, 1, HALF, 3)
    train(client, BATCHES[6:])
    assert [final(job, number, 60 + number).step for number in (0, 1)] == [len(BATCHES)] * 2


def test_rows_that_come_after_the_outcome_are_not_loaded(make_job: MakeJob) -> None:
    job, _, mover, recipient = training_with_a_second_ps(make_job)
    assert recipient.core.await_rows(signature("adam"), 2, HALF, "memory://job/manifest")
    ids, slabs = np.array([3, 5], np.int64), np.zeros((2, 13), np.float32)
    recipient.core.hold_rows(2, 0, ids, slabs, saved=True)
    mover.end(2)
    while recipient.core.placement.version < 2:
        job.register(1)
    recipient.core.hold_rows(2, 0, ids + 10, slabs, saved=True)
    assert recipient.core.hold(2, []) == ()
    assert recipient.core.shard is not None
    while recipient.core.shard.rows:
        job.register(1)


def test_a_recipient_that_dies_before_it_hears_of_the_outcome_serves_what_it_held(make_job: MakeJob) -> None:
    job, client, mover, recipient = training_with_a_second_ps(make_job)
    mover.copy(0, 1, HALF, 2, freeze=False)
    mover.copy(0, 1, HALF, 2, freeze=True)
    recipient.close()
    reborn = job.start(1)
    started = job.await_event(PsStarted, 3)
    assert [group.partitions for group in started.ledgers] == [HALF]
    mover.end(2, to=1, partitions=HALF)
    train(client, BATCHES[4:])
    assert reborn.core.shard is not None
    assert [group.ledger.step for group in reborn.core.shard.groups] == [len(BATCHES)]


def test_a_donor_that_is_not_there_is_read_from_its_register(make_job: MakeJob) -> None:
    job, client, mover, donor = training_with_a_second_ps(make_job)
    mover.move(0, 1, HALF, 2)
    train(client, BATCHES[4:6])
    final(job, 1, 40)
    train(client, BATCHES[6:8])
    donor.close()
    hold = HoldGroup(ps=PS_0, move=3, partitions=HALF, manifest="", donor=PS_1, version=2)
    job.order(hold)
    held = job.await_event(GroupHeld, where=lambda one: one.move == 3)
    assert [ledger.ledger.step for ledger in held.ledgers] == [6]
    mover.end(3, to=0, partitions=HALF)
    outcome = client.push(push_of(*BATCHES[7]))
    assert outcome.next_batch == BATCHES[6][1], "the group that came from the snapshot lacks two batches"
    train(client, BATCHES[6:])
    manifest = final(job, 0, 41)
    assert [(group.partitions, group.ledger.step) for group in manifest.groups] == [(ALL, len(BATCHES))]


def test_copies_are_kept_as_long_as_a_snapshot_refers_to_them(make_job: MakeJob) -> None:
    job, client, mover, recipient = training_with_a_second_ps(make_job)
    mover.copy(0, 1, HALF, 2, freeze=False)
    train(client, BATCHES[4:6])
    mover.move(0, 1, HALF, 2)
    registered = job.register(1).manifest
    copies = {chunk.of for chunk in read_manifest(job.store, registered).chunks}
    assert all(is_copy_for(copy, PS_1) for copy in copies), "nothing is written but the manifest"
    assert [info.uri for info in job.store.list(folder_of(registered))] == [registered]
    recipient.close()
    reborn = job.start(1)
    job.await_event(PsStarted, 3)
    assert reborn.core.shard is not None
    train(client, BATCHES[6:7])
    final(job, 1, 100)
    assert all(job.store.info(copy) for copy in copies), "its next life needs them, should the new snapshot be damaged"
    for number, batch in enumerate(BATCHES[7:18]):
        train(client, [batch])
        final(job, 1, 101 + number)
    while any(info.uri in copies for info in job.store.list("memory://job/")):
        job.register(1)
    train(client, BATCHES[18:])
    assert [final(job, number, 150 + number).step for number in (0, 1)] == [len(BATCHES)] * 2


def test_a_damaged_copy_spoils_the_snapshot_that_refers_to_it(make_job: MakeJob) -> None:
    job, client, mover, recipient = training_with_a_second_ps(make_job)
    mover.move(0, 1, HALF, 2)
    referring = job.register(1).manifest
    assert isinstance(job.store, MemoryStore)
    (chunk,) = [one for one in read_manifest(job.store, referring).chunks if one.part is ChunkPart.DENSE]
    train(client, BATCHES[4:6])
    written = final(job, 1, 100)
    assert written.base == referring
    recipient.close()
    flip(job.store, chunk_uri(chunk.of, chunk.name))
    reborn = job.start(1)
    started = job.await_event(PsStarted, 3)
    assert [group.ledger.step for group in started.ledgers] == [6], "a newer one has dense weights of its own"
    reborn.close()
    first = read_manifest(job.store, referring).base
    rows = [one for one in read_manifest(job.store, first).chunks if one.part is ChunkPart.ROWS]
    flip(job.store, chunk_uri(rows[0].of, rows[0].name))
    job.start(1)
    gathered = job.await_event(PsStarted, 4)
    assert [group.ledger.step for group in gathered.ledgers] == [0], "as the donor's snapshot 0 has them"
    damaged = job.await_event(SnapshotDamaged)
    assert (damaged.snapshot, damaged.object) == (first, chunk_uri(rows[0].of, rows[0].name))
    assert damaged.instead == gathered.restored_from == job.register(1).manifest


def test_what_came_with_a_move_is_gathered_where_it_is_saved(make_job: MakeJob) -> None:
    job, client, mover, recipient = training_with_a_second_ps(make_job)
    _, reference = make_job()
    train(reference, BATCHES)
    mover.move(0, 1, HALF, 2)
    train(client, BATCHES[4:6])
    recipient.close()
    flip(memory(job), job.register(1).manifest)
    reborn = job.start(1)
    gathered = job.await_event(PsStarted, 3)
    assert [(group.partitions, group.ledger.step) for group in gathered.ledgers] == [(HALF, 4)], "as it was copied"
    train(client, BATCHES[4:7])
    reborn.close()
    job.start(1)
    again = job.await_event(PsStarted, 4)
    assert again.restored_from == gathered.restored_from
    train(client, BATCHES[4:])
    for mine, theirs in zip(weights(client), weights(reference), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_is_saved_nowhere_is_said(make_job: MakeJob) -> None:
    job, client, mover, recipient = training_with_a_second_ps(make_job)
    mover.move(0, 1, HALF, 2)
    train(client, BATCHES[4:6])
    recipient.close()
    registered = job.register(1).manifest
    for info in list(job.store.list("memory://job/")):
        if info.uri.endswith(("/manifest", "/copy")):
            flip(memory(job), info.uri)
    with pytest.raises(NothingLeftError, match="damaged"):
        job.start(1)
    assert job.await_event(SnapshotDamaged).object == registered


def test_a_ps_that_is_given_what_it_has_lost_ends_and_its_next_life_has_it(make_job: MakeJob) -> None:
    job, client, mover, recipient = training_with_a_second_ps(make_job)
    mover.move(0, 1, ((128, 192),), 2)
    copy = mover.copy(0, 1, ((192, 256),), 3, freeze=True).manifest
    recipient.close()
    flip(memory(job), job.register(1).manifest)
    reborn = job.start(1)
    assert [group.partitions for group in job.await_event(PsStarted, 3).ledgers] == [((128, 192),)]
    while any(info.uri == copy for info in job.store.list("memory://job/")):
        job.register(1)  # The copy is garbage for a ps that does not know of its move.
    mover.end(3, to=1, partitions=((192, 256),))
    with pytest.raises(TransientError, match="version 3"):
        reborn.wait()
    reborn.close()
    shard = job.start(1).core.shard
    assert union([group.partitions for group in job.await_event(PsStarted, 4).ledgers]) == HALF
    assert shard is not None
    assert shard.step == 4
    # The moved part is as in the donor's first snapshot, or as in the copy where that was not deleted as garbage yet.
    assert shard.least_step in (0, 4)
    train(client, BATCHES[shard.least_step :])
    assert (shard.least_step, shard.step) == (len(BATCHES), len(BATCHES))


@pytest.mark.parametrize("name", ["manifest", "rows-0-00000"])
def test_a_ps_that_has_lost_all_that_it_held_begins_empty_and_gathers_it(make_job: MakeJob, name: str) -> None:
    job, client, mover, recipient = training_with_a_second_ps(make_job)
    mover.copy(0, 1, HALF, 2, freeze=True)
    recipient.close()
    registered = job.register(1).manifest
    chunks = read_manifest(job.store, registered).chunks
    flip(memory(job), next((chunk_uri(one.of, name) for one in chunks if one.name == name), registered))
    empty = job.start(1)
    assert job.await_event(PsStarted, 3).ledgers == ()
    mover.end(2, to=1, partitions=HALF)
    with pytest.raises(TransientError, match="version 2"):
        empty.wait()
    empty.close()
    job.start(1)
    assert [group.partitions for group in job.await_event(PsStarted, 4).ledgers] == [HALF]
    train(client, BATCHES[4:])


def test_an_order_about_a_later_table_is_refused(make_job: MakeJob) -> None:
    job, _ = make_job()
    with pytest.raises(PermanentError, match="version 2"):
        job.order(TakeSnapshot(ps=PS_0, request=1, reason="test", version=2))
    with pytest.raises(PermanentError, match="version 2"):
        job.order(OpenPin(ps=PS_0, evaluation=1, version=2))


def test_a_snapshot_that_can_not_be_read_is_said(make_job: MakeJob) -> None:
    job, _ = make_job()
    job.start(1)
    job.await_event(PsStarted, 2)
    manifest = "memory://job/nowhere/manifest"
    job.order(HoldGroup(ps=PS_1, move=2, partitions=HALF, manifest=manifest, donor=PS_0, version=1), 1)
    assert "missing" in job.await_event(GroupHeld).failure
