"""What becomes of a ps whose snapshots are damaged: the newest good one is used, on record and behind the fence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.unit.ps.damage import delete, flip, truncate
from tests.unit.ps.example import BATCHES, initial_dense, push_of, signature, spec
from tests.unit.ps.jobs import Job, die, equal, snapshot, untouched_reference

from elasticdl.ps.service import PsService
from elasticdl.ps.snapshots.recovery import NothingLeftError
from elasticdl.shared.errors import FencedError
from elasticdl.shared.messages.commands import TakeSnapshot
from elasticdl.shared.messages.events import ModelInitialised, PsStarted, SnapshotDamaged, SnapshotTaken
from elasticdl.shared.model.manifests import ChunkPart, Manifest, chunk_uri, encode_manifest, read_manifest
from elasticdl.shared.names import JobId, PodName
from elasticdl.shared.storage import MemoryStore
from elasticdl.worker.ps_client import PsClient

PS = PodName("ps-0")


DAMAGES = pytest.mark.parametrize("damage", [flip, truncate, delete])


class Trained:
    """A ps that has taken a snapshot after each of ``count`` batches, and died after one batch more."""

    def __init__(self, job: Job, count: int) -> None:
        self.job = job
        assert isinstance(job.store, MemoryStore)
        self.store = job.store
        service = job.start()
        self.client = job.client(signature("adam"))
        self.client.initialise(initial_dense())
        self.snapshots = [job.await_event(SnapshotTaken).manifest]
        for request, (task, batch) in enumerate(BATCHES[:count], start=1):
            self.client.push(push_of(task, batch))
            self.snapshots.append(snapshot(job, request).manifest)
        self.client.push(push_of(*BATCHES[count]))
        die(service)

    def rise(self) -> PsService:
        return self.job.start()

    def learn(self, first: int) -> PsClient:
        """Push everything from a batch on; returns the client."""
        for task, batch in BATCHES[first:]:
            self.client.push(push_of(task, batch))
        return self.client


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job(spec("memory://job"), MemoryStore())
    yield job
    job.close()


@pytest.fixture
def make_job() -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def make(of: object) -> Job:
        jobs.append(Job(of, MemoryStore()))  # type: ignore[arg-type]
        return jobs[-1]

    yield make
    for each in jobs:
        each.close()


@DAMAGES
@pytest.mark.parametrize(("part", "which"), [("manifest", 4), ("rows-0-00000", 4), ("dense-0", 6)])
def test_the_chain_is_used_up_to_its_last_good_snapshot(
    job: Job, make_job: Callable[..., Job], damage: Callable[[MemoryStore, str], None], part: str, which: int
) -> None:
    trained = Trained(job, 6)
    uri = trained.snapshots[which].removesuffix("manifest") + part
    good = trained.snapshots[which - 1]
    damage(trained.store, uri)
    trained.rise()
    started = job.await_event(PsStarted, 2)
    assert started.restored_from == good
    assert started.ledgers[0].ledger.step == which - 1
    told = job.await_event(SnapshotDamaged)
    assert (told.ps, told.snapshot, told.object, told.instead) == (PS, trained.snapshots[which], uri, good)
    assert told.problem
    register = job.register()
    assert (register.manifest, register.step) == (good, which - 1)
    assert register.older == tuple(trained.snapshots[: which - 1][::-1])
    equal(trained.learn(which - 1), untouched_reference(make_job, spec("memory://other"), len(BATCHES)))


def test_of_a_damaged_chain_the_one_before_is_used(job: Job, make_job: Callable[..., Job]) -> None:
    trained = Trained(job, 19)  # Full ones are 0, 8 and 16.
    flip(trained.store, chunk_uri(trained.snapshots[16], "rows-0-00000"))
    delete(trained.store, trained.snapshots[18])
    trained.rise()
    started = job.await_event(PsStarted, 2)
    assert started.restored_from == trained.snapshots[15]
    told = [job.await_event(SnapshotDamaged, count) for count in (1, 2)]
    assert {event.snapshot for event in told} == {trained.snapshots[16], trained.snapshots[18]}
    assert {event.instead for event in told} == {trained.snapshots[15]}
    equal(trained.learn(15), untouched_reference(make_job, spec("memory://other"), len(BATCHES)))


def test_where_nothing_else_is_left_the_initial_weights_are(job: Job, make_job: Callable[..., Job]) -> None:
    trained = Trained(job, 19)
    for uri in trained.snapshots[8:]:
        truncate(trained.store, uri)
    trained.rise()
    assert job.await_event(PsStarted, 2).restored_from == trained.snapshots[0]
    equal(trained.learn(0), untouched_reference(make_job, spec("memory://other"), len(BATCHES)))


@DAMAGES
def test_without_a_good_snapshot_the_first_damaged_object_is_named(
    job: Job, damage: Callable[[MemoryStore, str], None]
) -> None:
    trained = Trained(job, 2)
    uri = trained.snapshots[0]
    damage(trained.store, uri)
    with pytest.raises(NothingLeftError, match=f"{uri}.*Start a new job"):
        trained.rise()
    assert job.await_event(SnapshotDamaged).object == uri
    assert job.register().manifest == trained.snapshots[-1], "once the object is put back, all is as it was"


def test_what_is_bent_on_its_way_is_read_again(job: Job) -> None:
    trained = Trained(job, 2)

    class Bending(MemoryStore):
        bent = 0

        def read(self, uri: str, start: int = 0, length: int | None = None, *, etag: str = "") -> bytes:
            data = super().read(uri, start, length, etag=etag)
            self.bent += 1
            return data[:-1] if self.bent % 2 else data

    bending = Bending()
    bending._objects = trained.store._objects
    job.store = bending
    trained.rise()
    assert job.await_event(PsStarted, 2).restored_from == trained.snapshots[-1]


def test_a_former_life_can_not_undo_the_fallback(job: Job) -> None:
    former = job.start()
    client = job.client(signature("adam"))
    client.initialise(initial_dense())
    job.await_event(ModelInitialised)
    client.push(push_of(*BATCHES[0]))
    damaged = snapshot(job, 1).manifest
    client.push(push_of(*BATCHES[1]))
    assert isinstance(job.store, MemoryStore)
    flip(job.store, damaged)
    job.start()
    register = job.register()
    assert (register.step, register.older) == (0, ())
    job.loop.call(former.take_order(TakeSnapshot(ps=PS, request=2, reason="test"), "test"))
    with pytest.raises(FencedError):
        former.wait()
    assert job.register() == register


def test_snapshots_after_a_fallback_build_on_what_is_good(job: Job, make_job: Callable[..., Job]) -> None:
    trained = Trained(job, 3)
    flip(trained.store, chunk_uri(trained.snapshots[2], "rows-0-00000"))
    second = trained.rise()
    trained.client.push(push_of(*BATCHES[1]))
    taken = snapshot(job, 10).manifest
    assert not read_manifest(trained.store, taken).base
    assert job.register().older == (trained.snapshots[1], trained.snapshots[0])
    left = {info.uri.rsplit("/", 1)[0] for info in trained.store.list("memory://job/example-123456/snapshots/ps-")}
    kept = {uri.rsplit("/", 1)[0] for uri in (*trained.snapshots[:2], taken)}
    assert left == kept, "the damaged one and what built on it were tidied away"
    die(second)
    trained.rise()
    assert job.await_event(PsStarted, 3).restored_from == taken
    equal(trained.learn(2), untouched_reference(make_job, spec("memory://other"), len(BATCHES)))


def test_another_final_snapshot_is_taken_in_place_of_a_damaged_one(job: Job) -> None:
    job.start()
    client = job.client(signature("adam"))
    client.initialise(initial_dense())
    client.push(push_of(*BATCHES[0]))
    damaged = snapshot(job, 1, flush=True).manifest
    assert isinstance(job.store, MemoryStore)
    delete(job.store, damaged)
    job.order(TakeSnapshot(ps=PS, request=1, reason="final", flush=True, damaged=damaged))
    again = job.await_event(SnapshotTaken, 2, where=lambda taken: taken.request == 1)
    manifest = read_manifest(job.store, again.manifest)
    assert (manifest.base, manifest.step) == ("", 1)
    assert (job.register().manifest, damaged in job.register().older) == (again.manifest, False)
    job.order(TakeSnapshot(ps=PS, request=1, reason="final", flush=True, damaged=damaged))
    assert job.await_event(SnapshotTaken, 3, where=lambda taken: taken.request == 1) == again, "once is enough"


FOREIGN = "memory://job/other-654321/snapshots/ps-0/abc-000000/manifest"
OUTSIDE = {
    "a base of another job": lambda manifest: replace(manifest, base=FOREIGN),
    "a base above its folder": lambda manifest: replace(manifest, base=manifest.base + "/../../x/manifest"),
    "a base that is no manifest": lambda manifest: replace(
        manifest, base=manifest.base.replace("/manifest", "/dense-0")
    ),
    "another job": lambda manifest: replace(manifest, job=JobId("other-654321")),
    "an object above its folder": lambda manifest: replace(
        manifest, chunks=(replace(manifest.chunks[0], name="../../ps-1/abc-000000/dense-0"), *manifest.chunks[1:])
    ),
    "an object beside a manifest of another job": lambda manifest: replace(
        manifest, chunks=(replace(manifest.chunks[0], of=FOREIGN), *manifest.chunks[1:])
    ),
}


@pytest.mark.parametrize("change", OUTSIDE.values(), ids=OUTSIDE)
def test_a_manifest_that_names_other_objects_than_its_own_is_damaged(
    job: Job, change: Callable[[Manifest], Manifest]
) -> None:
    trained = Trained(job, 3)
    newest = trained.snapshots[3]
    trained.store.write(newest, encode_manifest(change(read_manifest(trained.store, newest))))
    trained.rise()
    assert job.await_event(PsStarted, 2).restored_from == trained.snapshots[2]
    assert job.await_event(SnapshotDamaged).snapshot == newest


def rows_of(manifest: Manifest) -> int:
    return next(number for number, chunk in enumerate(manifest.chunks) if chunk.part is ChunkPart.ROWS)


def chunk_changed(manifest: Manifest, number: int, **changes: object) -> Manifest:
    chunks = list(manifest.chunks)
    chunks[number] = replace(chunks[number], **changes)  # type: ignore[arg-type]
    return replace(manifest, chunks=tuple(chunks))


def group_changed(manifest: Manifest, **changes: object) -> Manifest:
    return replace(manifest, groups=(replace(manifest.groups[0], **changes),))  # type: ignore[arg-type]


ABSURD: dict[str, Callable[[Manifest], Manifest]] = {
    "a signature without dense variables": lambda one: replace(
        one, signature=json.dumps({key: value for key, value in json.loads(one.signature).items() if key != "dense"})
    ),
    "a signature that is no JSON": lambda one: replace(one, signature="{"),
    "a signature of another type": lambda one: replace(one, signature="[1, 2]"),
    "no dense weights": lambda one: replace(
        one, chunks=tuple(chunk for chunk in one.chunks if chunk.part is not ChunkPart.DENSE)
    ),
    "rows that are dense weights": lambda one: chunk_changed(one, 0, part=ChunkPart.ROWS, rows=3),
    "more rows than bytes": lambda one: chunk_changed(one, rows_of(one), rows=1 << 60),
    "rows of a table that there is not": lambda one: chunk_changed(one, rows_of(one), table=9),
    "two groups with the same partitions": lambda one: replace(one, groups=(*one.groups, *one.groups)),
    "partitions that there are not": lambda one: group_changed(one, partitions=((0, 1 << 20),)),
    "partitions that end before they begin": lambda one: group_changed(one, partitions=((9, 3),)),
    "a ledger with a task twice": lambda one: group_changed(
        one, ledger=replace(one.groups[0].ledger, finished=((5, 2), (2, 5)), step=1 << 40)
    ),
}


@pytest.mark.parametrize("change", ABSURD.values(), ids=ABSURD)
def test_a_snapshot_with_right_checksums_and_absurd_content_is_damaged(
    job: Job, change: Callable[[Manifest], Manifest]
) -> None:
    trained = Trained(job, 3)
    newest = trained.snapshots[3]
    trained.store.write(newest, encode_manifest(change(read_manifest(trained.store, newest))))
    trained.rise()
    assert job.await_event(PsStarted, 2).restored_from == trained.snapshots[2]
    assert job.await_event(SnapshotDamaged).snapshot == newest


def test_rows_that_can_not_be_loaded_damage_what_they_are_of(job: Job) -> None:
    trained = Trained(job, 3)
    wrong = trained.snapshots[2]
    manifest = read_manifest(trained.store, wrong)
    trained.store.write(wrong, encode_manifest(chunk_changed(manifest, rows_of(manifest), rows=1)))
    trained.rise()
    assert job.await_event(PsStarted, 2).restored_from == trained.snapshots[1]
    told = job.await_event(SnapshotDamaged)
    assert told.snapshot == wrong and "has the right checksum and can't be restored" in told.problem


def test_a_snapshot_under_the_name_of_another_one_is_reported(job: Job) -> None:
    trained = Trained(job, 3)
    older, newest = trained.snapshots[2], trained.snapshots[3]
    for info in list(trained.store.list(older.removesuffix("manifest"))):
        name = info.uri.rpartition("/")[2]
        trained.store.write(newest.removesuffix("manifest") + name, trained.store.read(info.uri))
    trained.rise()
    assert job.await_event(PsStarted, 2).restored_from == older
    told = job.await_event(SnapshotDamaged)
    assert (told.snapshot, told.instead) == (newest, older)
    assert told.problem == f"is another snapshot, {older.split('/')[-2]} of ps-0"


def test_a_snapshot_of_another_ps_is_reported(job: Job) -> None:
    trained = Trained(job, 3)
    newest = trained.snapshots[3]
    other = replace(read_manifest(trained.store, newest), ps=PodName("ps-1"))
    trained.store.write(newest, encode_manifest(other))
    trained.rise()
    assert job.await_event(PsStarted, 2).restored_from == trained.snapshots[2]
    assert job.await_event(SnapshotDamaged).problem.endswith(" of ps-1")
