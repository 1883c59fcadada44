"""Rows that are admitted by count and expire: the same after kills, restores, moves and with other numbers of ps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.unit.ps.cores import initialise, wire_push
from tests.unit.ps.example import BATCHES, PLAN, initial_dense, push_of, signature, spec
from tests.unit.ps.jobs import Job, die, equal, snapshot
from tests.unit.ps.servers import weights
from tests.unit.ps.test_moves import HALF, Mover

from elasticdl.ps.engine.tracked_rows import TableFigures
from elasticdl.ps.executors import count_tables
from elasticdl.ps.service import PsService
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.kept_versions import kept_versions
from elasticdl.ps.snapshots.reader import gather
from elasticdl.ps.snapshots.recovery import choose
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import ModelInitialised, PsStarted
from elasticdl.shared.messages.measurements import TableCounted
from elasticdl.shared.model.manifests import ChunkPart, read_manifest
from elasticdl.shared.model.partitioning import mask_of, partitions_of
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.rows.snapshot_rows import read_chain
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import MemoryStore, open_store
from elasticdl.shared.wire.messages import Floats, TableIds
from elasticdl.worker.ps_client import PsClient

MakeJob = Callable[..., tuple[Job, PsClient, list[PsService]]]


def model(expire_after: int = 3) -> ModelSignature:
    """``a`` has both options; ``b`` counts and never removes."""
    usual = signature("adam")
    a, b = usual.tables
    return replace(usual, tables=(replace(a, min_count=2, expire_after=expire_after), replace(b, min_count=12)))


@pytest.fixture
def make_job() -> Iterator[MakeJob]:
    jobs: list[Job] = []

    def make(ps: int = 1, of: JobSpec | None = None) -> tuple[Job, PsClient, list[PsService]]:
        of = of or spec("memory://job", ps=ps)
        store = MemoryStore() if of.storage.startswith("memory:") else open_store(of.storage)
        job = Job(of, store)
        jobs.append(job)
        services = [job.start(number) for number in range(ps)]
        client = job.client(model())
        client.initialise(initial_dense())
        job.await_event(ModelInitialised, ps)
        return job, client, services

    yield make
    for job in jobs:
        job.close()


def train(client: PsClient, batches: Sequence[tuple[int, int]]) -> None:
    for task, batch in batches:
        assert client.push(push_of(task, batch)).next_batch == batch + 1


def figures(services: Sequence[PsService]) -> dict[str, TableFigures]:
    """The sums over all ps."""
    found: dict[str, TableFigures] = {}
    for service in services:
        assert service.core.shard is not None
        for name, one in service.core.shard.table_figures().items():
            other = found.get(name, TableFigures(rows=0, candidates=0, admitted=0, dropped=0))
            found[name] = TableFigures(
                rows=one.rows + other.rows,
                candidates=one.candidates + other.candidates,
                admitted=one.admitted + other.admitted,
                dropped=one.dropped + other.dropped,
            )
    return found


def by_hand() -> dict[str, TableFigures]:
    """What the plan's pushes leave, counted id by id."""
    found = {}
    for table in model().tables:
        rows, counts, touched, admitted, dropped = set(), dict[int, int](), dict[int, int](), 0, 0
        for updates, (task, batch) in enumerate(BATCHES, start=1):
            for one in push_of(task, batch).rows[table.name][0].tolist():
                touched[one] = updates
                if one in rows:
                    continue
                counts[one] = counts.get(one, 0) + 1
                if counts[one] < table.min_count:
                    dropped += 1
                else:
                    del counts[one]
                    rows.add(one)
                    admitted += 1
            over = [one for one, last in touched.items() if table.expire_after and updates - last >= table.expire_after]
            for one in over:
                rows.discard(one)
                counts.pop(one, None)
                del touched[one]
        found[table.name] = TableFigures(rows=len(rows), candidates=len(counts), admitted=admitted, dropped=dropped)
    return found


@pytest.mark.parametrize("ps", [1, 2, 3])
def test_any_number_of_ps_counts_and_learns_the_same(make_job: MakeJob, ps: int) -> None:
    _, client, services = make_job(ps)
    _, reference, alone = make_job(1)
    for one in (client, reference):
        train(one, BATCHES)
    equal(client, reference)
    expected = by_hand()
    assert figures(services) == figures(alone) == expected
    assert expected["a"].expired > 0 and expected["a"].dropped > 0 and expected["b"].candidates > 0


@pytest.mark.parametrize(("every", "grads_to_wait"), [(2, 1), (3, 1), (7, 1), (3, 4)])
def test_a_ps_that_is_killed_again_and_again_ends_with_the_same_rows(
    make_job: MakeJob, every: int, grads_to_wait: int
) -> None:
    job, client, services = make_job(of=spec("memory://job", grads_to_wait=grads_to_wait))
    _, reference, alone = make_job(of=spec("memory://job", grads_to_wait=grads_to_wait))
    cuts = [*range(0, len(BATCHES), every), len(BATCHES)]
    for request, (start, stop) in enumerate(pairwise(cuts), start=1):
        train(client, BATCHES[start : stop - 1])
        snapshot(job, 2 * request)
        train(client, BATCHES[stop - 1 : stop])
        snapshot(job, 2 * request + 1)
        assert read_manifest(job.store, job.register().manifest).base, "this has to be an incremental one"
        for task, batch in BATCHES[stop : stop + 2]:  # Lost with the ps, and trained again after it.
            client.push(push_of(task, batch))
        die(services[0])
        services[0] = job.start()
        job.await_event(PsStarted, request + 1)
    train(reference, BATCHES)
    equal(client, reference)
    assert figures(services) == figures(alone)


def test_half_a_model_moves_with_its_counts(make_job: MakeJob) -> None:
    job, client, services = make_job()
    _, reference, alone = make_job()
    services.append(job.start(1))
    job.await_event(PsStarted, 2)
    mover = Mover(job)
    train(client, BATCHES[:5])
    mover.move(0, 1, HALF, 2)
    train(client, BATCHES[5:11])
    mover.move(1, 0, HALF, 3)
    train(client, BATCHES[11:15])
    mover.move(0, 1, HALF, 4)
    die(services[1])
    services[1] = job.start(1)
    job.await_event(PsStarted, 3)
    train(client, BATCHES[15:])
    train(reference, BATCHES)
    equal(client, reference)
    assert figures(services) == figures(alone)


def test_an_evaluation_reads_the_rows_of_its_cut(make_job: MakeJob) -> None:
    _, client, services = make_job()
    train(client, BATCHES[:10])
    expected = [np.copy(one) for one in weights(client)]
    services[0].core.open_pin(1)
    train(client, BATCHES[10:])
    for mine, theirs in zip(weights(client, pin=1), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not np.array_equal(weights(client)[1], expected[1])


@pytest.mark.parametrize("ps", [1, 2])
def test_another_job_starts_from_the_rows_that_a_pull_gives(make_job: MakeJob, tmp_path: Path, ps: int) -> None:
    job, client, _ = make_job(2, spec(f"file://{tmp_path}/first", ps=2))
    train(client, BATCHES)
    for number in range(2):
        snapshot(job, 1, number=number)
    version = kept_versions(job.store, job.spec, [job.register(number) for number in range(2)])[0]
    initial = version.as_initial_model(JobId("first"))
    _, other, services = make_job(ps, replace(spec(f"file://{tmp_path}/second", ps=ps), initial=initial))
    equal(other, client)
    admitted = {name: one.admitted for name, one in figures(services).items()}
    assert admitted == {name: one.rows for name, one in by_hand().items()}


def test_in_synchronous_training_the_order_within_a_round_changes_nothing() -> None:
    rounds = Rounds(plan=PLAN, tasks_per_cohort=3)
    cores = [synchronous_core(rounds) for _ in range(2)]
    ordered = sorted(BATCHES, key=lambda one: rounds.key(*one))
    for task, batch in ordered:
        cores[0].push(wire_push(task, batch))
    while ordered:
        members = rounds.members(*ordered[0])
        for task, batch in reversed(ordered[: len(members)]):
            cores[1].push(wire_push(task, batch))
        del ordered[: len(members)]
    one, other = (everything(each) for each in cores)
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    tables = [each.shard.table_figures() for each in cores if each.shard is not None]
    assert tables[0] == tables[1]
    assert tables[0]["a"].expired > 0


def synchronous_core(rounds: Rounds) -> PsCore:
    ps = PsCore(plan=PLAN, placement=Placement.even(1), number=0, policy=UpdatePolicy(rounds=rounds))
    ps.initialise(replace(initialise(), signature=model(expire_after=1).to_json()))
    ps.start_serving()
    return ps


def everything(ps: PsCore) -> list[Floats]:
    assert ps.shard is not None
    found = [ps.shard.whole_dense()]
    for number, table in enumerate(model().tables):
        rows = np.empty(table.input_dim * table.width, np.float32)
        ids = TableIds(table=number, width=table.width, ids=np.arange(table.input_dim))
        ps.shard.pull([ids], rows, None)
        found.append(rows)
    return found


def test_a_snapshot_without_such_tables_has_neither_candidates_nor_tallies(make_job: MakeJob) -> None:
    job = Job(spec("memory://job"), MemoryStore())
    try:
        job.start()
        client = job.client(signature("adam"))
        client.initialise(initial_dense())
        client.push(push_of(*BATCHES[0]))
        manifest = read_manifest(job.store, snapshot(job, 1).manifest)
        assert {chunk.part for chunk in manifest.chunks} == {ChunkPart.DENSE, ChunkPart.ROWS, ChunkPart.METRICS}
        assert max(chunk.table for chunk in manifest.chunks) == 1
    finally:
        job.close()


def test_an_ordered_snapshot_says_what_each_table_holds(make_job: MakeJob) -> None:
    job, client, services = make_job()
    train(client, BATCHES)
    taken = snapshot(job, 1, flush=True)
    counted = [one.event for one in job.log() if isinstance(one.event, TableCounted)]
    assert {one.table: (one.rows, one.candidates, one.admitted, one.dropped) for one in counted} == {
        name: (one.rows, one.candidates, one.admitted, one.dropped) for name, one in figures(services).items()
    }
    kinds = [type(one.event) for one in job.log()]
    last = len(kinds) - 1 - kinds[::-1].index(type(taken))
    assert kinds[last - 2 : last] == [TableCounted] * 2, "the figures are on the log before the snapshot"


def test_the_counts_of_tables_with_long_names_that_differ_in_the_middle_stay_apart() -> None:
    names = [f"{'a' * 200}{number}{'b' * 200}" for number in range(len(model().tables))]
    tables = tuple(replace(one, name=name) for one, name in zip(model().tables, names, strict=True))
    core = PsCore(plan=PLAN, placement=Placement.even(1), number=0, policy=UpdatePolicy())
    core.initialise(replace(initialise(), signature=replace(model(), tables=tables).to_json()))
    assert {one.table for one in count_tables(core)} <= set(names)
    assert len({one.table for one in count_tables(core)}) == 2


@pytest.mark.parametrize("ps", [1, 3])
def test_another_number_of_ps_takes_rows_counts_and_ages_over(make_job: MakeJob, ps: int) -> None:
    job, client, services = make_job(2)
    train(client, BATCHES[:12])
    chains = [read_chain(job.store, snapshot(job, 1, number=number).manifest) for number in range(2)]
    expected = weights(client)
    found = [np.zeros_like(rows) for rows in expected[1:]]
    sums: dict[str, list[int]] = {}
    for number in range(ps):
        core = PsCore(plan=PLAN, placement=Placement.even(ps), number=number, policy=UpdatePolicy())
        shard = gather(job.store, core, choose(chains, core.owned))
        for table, rows in enumerate(found):
            ids = np.arange(len(rows))
            ids = ids[mask_of(core.owned)[partitions_of(ids)]]
            out = np.empty(ids.size * rows.shape[1], np.float32)
            shard.pull([TableIds(table=table, width=rows.shape[1], ids=ids)], out, None)
            rows[ids] = out.reshape(ids.size, -1)
        for name, one in shard.table_figures().items():
            counts = [one.rows, one.candidates, one.admitted, one.dropped]
            sums[name] = [mine + other for mine, other in zip(counts, sums.get(name, [0] * 4), strict=True)]
    for mine, theirs in zip(found, expected[1:], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert sums == {
        name: [one.rows, one.candidates, one.admitted, one.dropped] for name, one in figures(services).items()
    }
    assert any(shard_sums[3] for shard_sums in sums.values())
