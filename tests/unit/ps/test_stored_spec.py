"""The job's specification beside its snapshots: one object, to which every manifest refers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.ps.damage import delete, flip, truncate
from tests.unit.ps.example import BATCHES, initial_dense, push_of, signature, spec
from tests.unit.ps.job_with_snapshots import STORAGE, job
from tests.unit.ps.jobs import Job, snapshot

from elasticdl.cli.jobs.former_run import FormerRun
from elasticdl.cli.jobs.resumption import recover_without_log
from elasticdl.ps.snapshots.job_recovery import recover_job, restore_registers
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Source
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.registers import decode_register
from elasticdl.shared.model.manifests import (
    DamagedError,
    decode_manifest,
    encode_manifest,
    manifest_uris,
    read_manifest,
    snapshots_folder,
)
from elasticdl.shared.model.stored_spec import StoredSpec
from elasticdl.shared.names import PodName
from elasticdl.shared.storage import MemoryStore, ObjectStore

__all__ = ["job"]


def objects(store: ObjectStore, job: JobSpec) -> list[str]:
    """URIs of everything that says what the job is."""
    return [info.uri for info in store.list(snapshots_folder(job.storage, job.job) + "job-")]


def all_manifests(job: Job) -> list[str]:
    return manifest_uris(job.store, snapshots_folder(STORAGE, job.spec.job), "manifest")


def test_all_manifests_of_a_job_refer_to_one_object(job: Job) -> None:
    assert len(all_manifests(job)) == 7
    stored = StoredSpec(job.spec)
    assert objects(job.store, job.spec) == [stored.uri]
    for uri in all_manifests(job):
        manifest = read_manifest(job.store, uri)
        assert manifest.spec_digest == stored.digest


def test_a_manifest_does_not_grow_with_the_number_of_files() -> None:
    few = spec(STORAGE)
    sources = tuple(
        Source(uri=f"s3://bucket/{number}.csv", size_bytes=1000, etag=f"{number:032x}", records=3)
        for number in range(5000)
    )
    many = replace(few, plan=replace(few.plan, sources=sources))
    sizes = []
    for one in (few, many):
        job = Job(one, MemoryStore())
        try:
            job.start()
            job.client(signature()).initialise(initial_dense())
            snapshot(job, 1)
            sizes.append(len(job.store.read(job.register().manifest)))
            found = recover_job(job.store, STORAGE, one.job)
            assert found is not None and found.spec == one
        finally:
            job.close()
    assert sizes[0] == sizes[1] < 2000


@pytest.mark.parametrize(("damage", "problem"), [(delete, "is missing"), (flip, "damaged"), (truncate, "damaged")])
async def test_without_the_object_the_error_names_it_and_says_what_to_do(
    job: Job, damage: Callable[[MemoryStore, str], None], problem: str
) -> None:
    assert isinstance(job.store, MemoryStore)
    (place,) = objects(job.store, job.spec)
    damage(job.store, place)
    with pytest.raises(DamagedError, match=problem) as damaged:
        recover_job(job.store, STORAGE, job.spec.job)
    assert damaged.value.uri == place
    former = FormerRun(job=job.spec.job, arguments="j", storage=STORAGE)
    with pytest.raises(UserError, match="no snapshot says what the job is") as refused:
        await recover_without_log(former, job.store)
    assert place in str(refused.value)
    assert "Restore" in refused.value.hint


def test_if_the_object_is_damaged_an_older_snapshot_says_what_the_job_is(job: Job) -> None:
    newest, *_, oldest = (job.register(1).manifest, *job.register(1).older)
    (place,) = objects(job.store, job.spec)
    other = StoredSpec(job.spec.with_epochs(9))
    other.write_if_missing(job.store)
    manifest = replace(read_manifest(job.store, oldest), spec_digest=other.digest)
    job.store.write(oldest, encode_manifest(manifest))
    delete(job.store, place)  # type: ignore[arg-type]
    recovered = recover_job(job.store, STORAGE, job.spec.job)
    assert recovered is not None
    assert recovered.spec == job.spec.with_epochs(9)
    assert recovered.registers[PodName("ps-1")].manifest == newest, "its weights are as good as before"


async def test_a_job_whose_log_is_there_does_not_need_the_object(job: Job) -> None:
    delete(job.store, objects(job.store, job.spec)[0])  # type: ignore[arg-type]
    bus = MemoryBroker().connect()
    await restore_registers(bus.registers, job.store, job.spec, None)
    entry = await bus.registers.read(PodName("ps-1"))
    assert entry is not None
    assert decode_register(entry.value).step == 3


@pytest.mark.parametrize("damage", [delete, truncate])
def test_an_object_that_was_deleted_while_the_job_runs_is_written_again(
    job: Job, damage: Callable[[MemoryStore, str], None]
) -> None:
    assert isinstance(job.store, MemoryStore)
    (place,) = objects(job.store, job.spec)
    damage(job.store, place)
    job.client(signature("adam")).push(push_of(*BATCHES[3]))
    snapshot(job, 11)
    recovered = recover_job(job.store, STORAGE, job.spec.job)
    assert recovered is not None
    assert recovered.spec == job.spec


@pytest.mark.parametrize("digest", ["../../other/job", "x", "0" * 31])
def test_a_manifest_that_names_anything_but_a_digest_is_damaged(job: Job, digest: str) -> None:
    uri = job.register().manifest
    manifest = decode_manifest(job.store.read(uri), uri)
    job.store.write(uri, encode_manifest(replace(manifest, spec_digest=digest)))
    with pytest.raises(DamagedError, match="no digest"):
        read_manifest(job.store, uri)
