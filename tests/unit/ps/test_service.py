"""A ps' life: start, snapshots, death, restore, fencing, orders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.deadline import DEADLINE_S
from tests.unit.ps.example import BATCHES, PLAN, initial_dense, push_of, signature, spec
from tests.unit.ps.jobs import Job, die, equal, snapshot, untouched_reference
from tests.unit.ps.servers import weights

from elasticdl.ps.snapshots.policy import SnapshotPolicy
from elasticdl.shared.bus.memory.log import MemoryEventLog
from elasticdl.shared.errors import FencedError, PermanentError, TransientError, UserError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import ClosePin, OpenPin, StopPod, TakeSnapshot
from elasticdl.shared.messages.events import (
    Envelope,
    ModelInitialised,
    ModelPinned,
    PsStarted,
    SnapshotTaken,
    StepReached,
)
from elasticdl.shared.model.manifests import read_chunk, read_manifest
from elasticdl.shared.model.rows.snapshot_rows import read_chain
from elasticdl.shared.names import PodName
from elasticdl.shared.storage import MemoryStore, ObjectInfo, ObjectStore, open_store, to_uri
from elasticdl.worker.ps_client import PinLostError

PS = PodName("ps-0")
MakeJob = Callable[..., Job]


@pytest.fixture(params=["memory", "file"])
def store_and_folder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ObjectStore, str]:
    if request.param == "memory":
        return MemoryStore(), "memory://job"
    folder = to_uri(tmp_path)
    return open_store(folder), folder


@pytest.fixture
def make_job() -> Iterator[MakeJob]:
    jobs: list[Job] = []

    def make(of: JobSpec, store: ObjectStore | None = None) -> Job:
        jobs.append(Job(of, store or MemoryStore()))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


def test_snapshot_0_is_registered_before_the_first_push_is_answered(make_job: MakeJob) -> None:
    job = make_job(spec("memory://job"))
    service = job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    client.push(push_of(0, 0))
    kinds = [type(envelope.event) for envelope in job.log()[1:4]]
    assert kinds == [PsStarted, SnapshotTaken, ModelInitialised]
    started = job.await_event(PsStarted)
    assert (started.address, started.ledgers, started.restored_from) == (service.address, (), "")
    initialised = job.await_event(ModelInitialised)
    assert initialised.signature == signature().digest()
    assert job.register().manifest == job.await_event(SnapshotTaken).manifest
    numbers = [envelope.number for envelope in job.log()[1:]]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_ps_that_hears_nothing_of_the_registers_any_more_ends(make_job: MakeJob) -> None:
    service = make_job(spec("memory://job")).make()
    service.start()
    service.hang_up()
    with pytest.raises(TransientError, match="the connection to NATS is closed"):
        service.wait()


@pytest.mark.parametrize("grads_to_wait", [1, 4])
def test_a_restored_ps_goes_on_as_if_nothing_had_happened(
    make_job: MakeJob, store_and_folder: tuple[ObjectStore, str], grads_to_wait: int
) -> None:
    store, folder = store_and_folder
    of = spec(folder, grads_to_wait=grads_to_wait)
    job = make_job(of, store)
    service = job.start()
    client = job.client(signature("adam"))
    client.initialise(initial_dense())
    for task, batch in BATCHES[:6]:
        client.push(push_of(task, batch))
    taken = snapshot(job, 1)
    for task, batch in BATCHES[6:9]:
        client.push(push_of(task, batch))  # will be lost
    die(service)
    job.start()
    started = job.await_event(PsStarted, 2)
    assert started.restored_from == taken.manifest
    assert started.ledgers == taken.ledgers
    assert started.ledgers[0].ledger.step == 6
    outcome = client.push(push_of(*BATCHES[7]))
    assert outcome.next_batch == 2, "a gap: the ps is back at task 1, batch 2"
    for task, batch in BATCHES[6:]:
        assert client.push(push_of(task, batch)).next_batch == batch + 1
    final = snapshot(job, 2, flush=True)
    ledger = read_manifest(store, final.manifest).ledgers[0].ledger
    assert (ledger.finished, ledger.step, ledger.records) == (((0, PLAN.tasks),), len(BATCHES), PLAN.records)
    reference_job = make_job(of)
    reference_job.start()
    reference = reference_job.client(signature("adam"))
    reference.initialise(initial_dense())
    for task, batch in BATCHES:
        reference.push(push_of(task, batch))
    snapshot(reference_job, 1, flush=True)
    equal(client, reference)


def test_a_chain_of_snapshots_taken_under_pushes_restores_each_cut_exactly(
    make_job: MakeJob, store_and_folder: tuple[ObjectStore, str]
) -> None:
    store, folder = store_and_folder
    job = make_job(spec(folder), store)
    service = job.start()
    client = job.client(signature("adam"))
    client.initialise(initial_dense())

    def push_all() -> None:
        for task, batch in BATCHES:
            client.push(push_of(task, batch))

    pusher = threading.Thread(target=push_all)
    pusher.start()
    taken = [snapshot(job, request) for request in range(1, 8)]
    pusher.join()
    step = taken[-1].ledgers[0].ledger.step
    die(service)
    job.start()
    assert job.await_event(PsStarted, 2).ledgers[0].ledger.step == step
    equal(client, untouched_reference(make_job, spec("memory://other"), step))


def test_old_snapshots_are_deleted_and_kept_ones_stay_whole(make_job: MakeJob) -> None:
    store = MemoryStore()
    job = make_job(spec("memory://job"), store)
    service = job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    for request, (task, batch) in enumerate(BATCHES[:20], start=1):
        client.push(push_of(task, batch))
        snapshot(job, request)
    manifests = [info.uri for info in store.list("memory://job") if info.uri.endswith("/manifest")]
    bases = [read_manifest(store, uri).base for uri in manifests]
    assert sum(not base for base in bases) == 3, "two whole chains, and the snapshot from before the first push"
    assert len(manifests) == 1 + 8 + 5
    die(service)
    folder = manifests[0].rsplit("/", 2)[0]
    store.write(f"{folder}/half-written-000001/rows-0-00000", b"left by a former life")
    reborn = job.start()
    client.push(push_of(*BATCHES[20]))
    snapshot(job, 21)  # by the thread that tidied up before
    assert not list(store.list(f"{folder}/half-written"))
    die(reborn)
    job.start()
    assert job.await_event(PsStarted, 3).ledgers[0].ledger.step == 21
    equal(client, untouched_reference(make_job, spec("memory://other"), 21, "sgd"))


def until(condition: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_s, "it did not come true"
        threading.Event().wait(0.01)


def empty_folders(folder: Path) -> list[Path]:
    """Old snapshots are deleted after the new one is announced, so a folder may vanish meanwhile."""
    with suppress(FileNotFoundError):
        return [each for each in folder.iterdir() if not list(each.iterdir())]
    return [folder]


def test_what_is_deleted_leaves_no_empty_folder(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(spec(to_uri(tmp_path)), open_store(to_uri(tmp_path)))
    service = job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    for request, (task, batch) in enumerate(BATCHES[:20], start=1):
        client.push(push_of(task, batch))
        snapshot(job, request)
    (folder,) = {manifest.parents[1] for manifest in tmp_path.rglob("manifest")}
    until(lambda: not empty_folders(folder))
    die(service)
    (folder / "never-written-000001").mkdir()
    job.start()
    client.push(push_of(*BATCHES[20]))
    snapshot(job, 21)
    until(lambda: not empty_folders(folder))


def test_a_repeated_order_is_answered_with_the_same_snapshot(make_job: MakeJob) -> None:
    job = make_job(spec("memory://job"))
    job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    client.push(push_of(0, 0))
    first = snapshot(job, 7)
    client.push(push_of(0, 1))
    job.order(TakeSnapshot(ps=PS, request=7, reason="test"))
    again = job.await_event(SnapshotTaken, 3)
    assert again == first
    assert snapshot(job, 8).ledgers[0].ledger.step == 2


class GivesUpOnce(MemoryEventLog):
    """A log that does not take the first announcement of a snapshot, as after a long absence of the broker."""

    refusals: frozenset[int] = frozenset({0, 5})

    async def append(self, envelope: Envelope) -> int:
        if isinstance(envelope.event, SnapshotTaken) and envelope.event.request in self.refusals:
            self.refusals = self.refusals - {envelope.event.request}
            raise TransientError("given up")
        return await super().append(envelope)


def test_a_snapshot_whose_announcement_failed_is_announced_later(make_job: MakeJob) -> None:
    job = make_job(spec("memory://job"))
    job.make(log=GivesUpOnce).start()
    client = job.client(signature())
    client.initialise(initial_dense())
    assert job.await_event(SnapshotTaken).ledgers[0].ledger.step == 0
    client.push(push_of(0, 0))
    assert snapshot(job, 5).manifest == job.register().manifest
    told = [envelope.event.request for envelope in job.log() if isinstance(envelope.event, SnapshotTaken)]
    assert told == [0, 5], "each once"


def test_snapshots_by_steps(make_job: MakeJob) -> None:
    job = make_job(replace(spec("memory://job"), snapshot_steps=3))
    job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    for task, batch in BATCHES[:3]:
        client.push(push_of(task, batch))
    assert job.await_event(SnapshotTaken, 2).ledgers[0].ledger.step == 3


def test_the_former_life_is_fenced(make_job: MakeJob) -> None:
    job = make_job(spec("memory://job"))
    old = job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    client.push(push_of(0, 0))
    new = job.start()
    assert job.register().incarnation != ""
    assert job.register().address == new.address
    registered = job.register().manifest
    # The old life is asked directly: the broker does not route orders to it any more.
    job.loop.call(old.take_order(TakeSnapshot(ps=PS, request=1, reason="test"), "test"))
    with pytest.raises(FencedError):
        old.wait()
    assert job.register().manifest == registered


class InterruptedStore(MemoryStore):
    """A store in which something happens just before the next listing."""

    meanwhile: Callable[[], None] | None = None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().list(prefix)


def test_a_former_life_that_tidies_up_late_spares_its_successors_snapshots(make_job: MakeJob) -> None:
    store = InterruptedStore()
    job = make_job(spec("memory://job"), store)
    first = job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    client.push(push_of(0, 0))
    snapshot(job, 1)
    die(first)
    started = threading.Event()

    def take_over() -> None:
        assert started.wait(DEADLINE_S)
        job.start()
        client.push(push_of(0, 1))
        snapshot(job, 2)

    store.meanwhile = take_over
    late = job.start()
    started.set()
    with pytest.raises(FencedError):
        late.wait()
    late.close()
    uri, manifest = read_chain(store, job.register().manifest)[-1]
    assert manifest.step == 2
    for chunk in manifest.chunks:
        read_chunk(store, uri, chunk)


def test_a_young_ps_takes_snapshots_sooner() -> None:
    policy = SnapshotPolicy(interval_s=30.0, first_s=5.0)
    assert [policy.pause_s(taken) for taken in range(5)] == [5.0, 10.0, 20.0, 30.0, 30.0]
    assert SnapshotPolicy(interval_s=2.0).pause_s(0) == 2.0
    assert SnapshotPolicy(interval_s=0.0).pause_s(3) == 0.0


def test_a_snapshot_of_another_plan_is_refused(make_job: MakeJob) -> None:
    job = make_job(spec("memory://job"))
    service = job.start()
    job.client(signature()).initialise(initial_dense())
    job.await_event(ModelInitialised)
    die(service)
    job.spec = replace(job.spec, plan=replace(PLAN, seed=8))
    other = job.make()
    other.core.plan = job.spec.plan
    with pytest.raises(UserError, match="is of plan"):
        other.start()


def test_evaluations_read_their_pin(make_job: MakeJob) -> None:
    job = make_job(spec("memory://job"))
    job.start()
    client = job.client(signature("adam"))
    with pytest.raises(PermanentError, match="the model is not initialised"):
        job.order(OpenPin(ps=PS, evaluation=3))
    client.initialise(initial_dense())
    client.push(push_of(0, 0))
    pinned = weights(client)
    job.order(OpenPin(ps=PS, evaluation=4))
    assert job.await_event(ModelPinned) == ModelPinned(evaluation=4, step=1)
    client.push(push_of(0, 1))
    snapshot(job, 1)
    client.push(push_of(0, 2))
    for mine, theirs in zip(weights(client, pin=4), pinned, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    job.order(OpenPin(ps=PS, evaluation=5))
    assert job.await_event(ModelPinned, 2).step == 3
    with pytest.raises(PinLostError):
        weights(client, pin=4)
    job.order(ClosePin(ps=PS, evaluation=5))
    job.order(OpenPin(ps=PS, evaluation=6))
    assert job.await_event(ModelPinned, 3).step == 3


def test_steps_are_announced_and_foreign_orders_refused(make_job: MakeJob) -> None:
    job = make_job(spec("memory://job", evaluation_steps=2))
    job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    for task, batch in BATCHES[:5]:
        client.push(push_of(task, batch))
    assert [job.await_event(StepReached, count).step for count in (1, 2)] == [2, 4]
    with pytest.raises(PermanentError, match="StopPod"):
        job.order(StopPod(pod=PS, reason="test"))


def test_one_of_three_ps_dies_and_the_model_ends_as_if_it_had_not(make_job: MakeJob) -> None:
    job = make_job(spec("memory://job", ps=3))
    services = [job.start(number) for number in range(3)]
    client = job.client(signature("adam"))
    client.initialise(initial_dense())
    next_batch = dict.fromkeys(PLAN.task_ids(), 0)
    position = 0
    for task in PLAN.task_ids():
        batches = PLAN.batches_of(task)
        while next_batch[task] < batches:
            next_batch[task] = client.push(push_of(task, next_batch[task])).next_batch
            position += 1
            if position == 5:
                snapshot(job, 1, number=1)
            if position == 7:
                die(services[1])
                services[1] = job.start(1)
    # Task 1 was in hand when ps-1 went back to step 5: batches 1.. of it were recomputed for ps-1 alone.
    assert position > len(BATCHES)
    assert [service.core.step for service in services] == [len(BATCHES)] * 3
    equal(client, untouched_reference(make_job, spec("memory://other"), len(BATCHES)))
