"""Recovery of a job from its snapshots alone."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.ps.job_with_snapshots import STORAGE, job
from tests.unit.ps.jobs import Job

from elasticdl.ps.snapshots.job_recovery import recover_job, restore_registers, settle_placement
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.messages.events import LostLog, PsStarted
from elasticdl.shared.messages.registers import PsRegister, decode_register, encode_register
from elasticdl.shared.model.manifests import Manifest, encode_manifest, read_manifest
from elasticdl.shared.model.placement import ALL, PARTITIONS, Placement, decode_placement, encode_placement
from elasticdl.shared.names import Incarnation, JobId, PodName
from elasticdl.shared.storage import MemoryStore

__all__ = ["job"]

PS_0, PS_1 = PodName("ps-0"), PodName("ps-1")


def test_the_snapshots_tell_the_job_and_the_best_state_of_each_ps(job: Job) -> None:
    recovered = recover_job(job.store, STORAGE, job.spec.job)
    assert recovered is not None
    assert recovered.spec == job.spec
    for number, name in enumerate((PS_0, PS_1)):
        theirs, mine = job.register(number), recovered.registers[name]
        assert (mine.manifest, mine.step, mine.older) == (theirs.manifest, theirs.step, theirs.older)
        assert mine.incarnation == ""
    assert [recovered.registers[name].step for name in (PS_0, PS_1)] == [2, 3]


def test_a_torn_manifest_is_passed_over(job: Job) -> None:
    newest = job.register(1)
    job.store.write(newest.manifest, job.store.read(newest.manifest)[:-1])
    recovered = recover_job(job.store, STORAGE, job.spec.job)
    assert recovered is not None
    assert (recovered.registers[PS_1].manifest, recovered.registers[PS_1].step) == (newest.older[0], 2)


def write(job: Job, manifest: Manifest) -> None:
    """Write a manifest where its ps writes it."""
    name = f"{manifest.incarnation}-{manifest.number:06d}"
    uri = f"{STORAGE}/{job.spec.job}/snapshots/{manifest.ps}/{name}/manifest"
    job.store.write(uri, encode_manifest(manifest))


async def test_the_placement_of_the_newest_snapshots_is_made_known(job: Job) -> None:
    newest = read_manifest(job.store, job.register(0).manifest)
    (group,) = newest.groups
    write(job, replace(newest, placement_version=2, number=50, groups=(replace(group, partitions=ALL),)))
    bus = MemoryBroker().connect()
    assert await settle_placement(bus.registers, job.store, job.spec, None, None, 7.0) is None, "the log knows it"
    placement = await settle_placement(bus.registers, job.store, job.spec, None, LostLog(), 7.0)
    assert placement is not None
    assert (placement.version, placement.holders) == (7, (0,))
    entry = await bus.registers.read(PLACEMENT)
    assert entry is not None
    assert decode_placement(entry.value) == placement
    register = await bus.registers.read(PS_0)
    assert register is not None
    assert decode_register(register.value).manifest.endswith("-000050/manifest")


async def test_a_placement_that_was_published_and_that_no_snapshot_is_of_is_taken_back(job: Job) -> None:
    bus = MemoryBroker().connect()
    published = Placement(version=2, owners=(0,) * PARTITIONS)
    await bus.registers.write(PLACEMENT, encode_placement(published), after=0)
    placement = await settle_placement(bus.registers, job.store, job.spec, None, LostLog(), 7.0)
    assert placement is not None
    assert (placement.version, placement.owners) == (7, Placement.even(2).owners)
    entry = await bus.registers.read(PLACEMENT)
    assert entry is not None
    assert decode_placement(entry.value) == placement


async def test_without_snapshots_a_published_placement_gives_way_to_an_even_one(job: Job) -> None:
    bus = MemoryBroker().connect()
    assert await settle_placement(bus.registers, MemoryStore(), job.spec, None, LostLog(), 7.0) is None, "nothing moved"
    published = Placement(version=2, owners=(0,) * PARTITIONS)
    await bus.registers.write(PLACEMENT, encode_placement(published), after=0)
    placement = await settle_placement(bus.registers, MemoryStore(), job.spec, None, LostLog(), 7.0)
    assert placement == Placement(version=7, owners=Placement.even(2).owners)


async def test_a_group_that_was_held_counts_where_its_move_was_finished(job: Job) -> None:
    ours, theirs = (read_manifest(job.store, job.register(number).manifest) for number in range(2))
    held = replace(theirs.groups[0], partitions=((100, 128),), move=2)
    reduced = replace(ours.groups[0], partitions=((0, 100),))
    write(job, replace(ours, placement_version=2, number=50, groups=(reduced,)))
    write(job, replace(theirs, groups=(*theirs.groups, held), number=99))
    recovered = recover_job(job.store, STORAGE, job.spec.job)
    assert recovered is not None
    assert recovered.placement.partitions(1) == ((100, 256),)


def test_where_there_is_nothing_nothing_is_found() -> None:
    assert recover_job(MemoryStore(), STORAGE, JobId("never-123456")) is None


async def test_registers_that_name_nothing_are_written_anew_and_others_left_alone(job: Job) -> None:
    bus = MemoryBroker().connect()
    good = PsRegister(address="a:1", incarnation=Incarnation("former"), manifest=job.register(0).manifest, step=2)
    stale = PsRegister(address="a:2", incarnation=Incarnation("former"), manifest=f"{STORAGE}/deleted/manifest")
    await bus.registers.write(PS_0, encode_register(good), after=0)
    await bus.registers.write(PS_1, encode_register(stale), after=0)
    await restore_registers(bus.registers, job.store, job.spec, None)
    entries = [await bus.registers.read(name) for name in (PS_0, PS_1)]
    registers = [decode_register(entry.value) for entry in entries if entry]
    assert registers[0] == good
    assert (registers[1].incarnation, registers[1].step) == ("", 3)


def test_while_the_register_names_a_snapshot_one_that_was_never_registered_does_not_count(job: Job) -> None:
    registered = job.register(1)
    newest = read_manifest(job.store, registered.manifest)
    (group,) = newest.groups
    ahead = replace(group, ledger=replace(group.ledger, step=99))
    write(job, replace(newest, incarnation=Incarnation("fenced"), number=7, groups=(ahead,)))
    job.loop.call(restore_registers(job.bus.registers, job.store, job.spec, None))
    assert job.register(1) == registered
    job.start(1)
    assert job.await_event(PsStarted, 3).restored_from == registered.manifest
