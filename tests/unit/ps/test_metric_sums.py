"""The sums of metric states of an epoch: over exactly the batches in the ledger, wherever the group goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.ps.cores import core_of, wire_push
from tests.unit.ps.example import BATCHES, PLAN, initial_dense, push_of, signature, spec
from tests.unit.ps.jobs import Job, die, snapshot

from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.metric_sums import EpochMetricSums
from elasticdl.ps.shard.regrouping import joined, reduced
from elasticdl.shared.model.placement import PARTITIONS
from elasticdl.shared.storage import MemoryStore
from elasticdl.shared.wire.message_codec import decode_reply, decode_request, encode_reply, encode_request
from elasticdl.shared.wire.messages import MetricsReply, Push, ReadMetrics

POLICY = UpdatePolicy(tasks_per_epoch=PLAN.tasks_per_epoch)


def states_of(task: int, batch: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([1.0, 10.0 * task + batch, 0.25])


def measured(task: int, batch: int, *, empty: bool = False) -> Push:
    return replace(wire_push(task, batch, empty=empty), metric_states=states_of(task, batch))


def read(core: PsCore, epoch: int = 0) -> MetricsReply:
    return core.read_metrics(ReadMetrics(plan=PLAN.fingerprint, placement_version=1, epoch=epoch))


def expected(batches: list[tuple[int, int]]) -> list[float]:
    total: list[float] = np.sum([states_of(*each) for each in batches], axis=0).tolist()
    return total


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job(spec("memory://job"), MemoryStore())
    yield job
    job.close()


def test_each_absorbed_batch_is_added_once_also_if_it_has_no_gradients() -> None:
    core = core_of(policy=POLICY)
    first, second = BATCHES[:2]
    for push in (measured(*first), measured(*first), measured(*second, empty=True), measured(*first)):
        core.push(push)
    found = read(core)
    assert (found.complete, found.batches, found.states.tolist()) == (False, 2, expected([first, second]))
    assert found.records == measured(*first).records + measured(*second).records


def test_a_batch_without_states_counts_and_later_ones_have_theirs() -> None:
    core = core_of(policy=POLICY)
    core.push(wire_push(*BATCHES[0], empty=True))
    assert (read(core).batches, read(core).states.size) == (1, 0)
    core.push(measured(*BATCHES[1]))
    assert (read(core).batches, read(core).states.tolist()) == (2, expected([BATCHES[1]]))


def test_an_epoch_is_complete_without_the_tasks_that_were_skipped() -> None:
    core = core_of(policy=POLICY)
    for task, batch in BATCHES:
        if task != 1:
            core.push(measured(task, batch))

    def is_complete(*skipped: int) -> bool:
        request = ReadMetrics(plan=PLAN.fingerprint, placement_version=1, epoch=0, skipped=skipped)
        return core.read_metrics(request).complete

    assert [is_complete(), is_complete(0), is_complete(1), is_complete(1, 0)] == [False, False, True, True]


def test_states_of_another_number_of_values_are_refused_and_change_nothing() -> None:
    core = core_of(policy=POLICY)
    core.push(measured(*BATCHES[0]))
    with pytest.raises(RefusedError, match="have 2 state values, those of earlier batches of the epoch 3: resume"):
        core.push(replace(wire_push(*BATCHES[1]), metric_states=np.ones(2)))
    assert (core.step, read(core).batches) == (1, 1)


def test_a_group_without_partition_0_has_no_sums() -> None:
    core = core_of(policy=POLICY, ps=2)
    assert core.shard is not None
    cut = core.shard.groups[0].cut()
    upper = ((1, PARTITIONS // 2),)
    assert reduced(replace(cut, metrics=np.ones((1, 4))), upper, core.shard.signature.dense).metrics.size == 0


def test_groups_that_merge_have_the_sums_of_the_one_with_partition_0() -> None:
    core = core_of(policy=POLICY)
    core.push(measured(*BATCHES[0]))
    assert core.shard is not None
    whole, dense = core.shard.groups[0].cut(), core.shard.signature.dense
    half = PARTITIONS // 2
    parts = [reduced(whole, bounds, dense) for bounds in (((half, PARTITIONS),), ((0, half),))]
    assert [part.metrics.size > 0 for part in parts] == [False, True]
    np.testing.assert_array_equal(joined(parts, dense).metrics, whole.metrics)


def test_reading_an_epoch_drops_the_sums_of_earlier_ones() -> None:
    sums = EpochMetricSums(tasks_per_epoch=2)
    for task in range(6):
        sums.add(task, 10, np.array([1.0, float(task)]))
    sums.drop_before(1)
    again = EpochMetricSums(tasks_per_epoch=2)
    again.load(sums.table())
    assert [(again.of(epoch).batches, again.of(epoch).states.tolist()) for epoch in range(3)] == [
        (0, []),
        (2, [2.0, 5.0]),
        (2, [2.0, 9.0]),
    ]
    sums.add(1, 10, np.array([1.0, 1.0]))  # A ps that was restored absorbs a batch of the first epoch again.
    assert sums.of(0).batches == 0


def test_an_epoch_keeps_its_number_of_states_beside_epochs_with_more() -> None:
    sums = EpochMetricSums(tasks_per_epoch=1)
    given = [np.array([1.0, 2.0]), np.array([1.0, 2.0, 0.0, 0.0]), np.zeros(0)]
    for task, states in enumerate(given):
        sums.add(task, 10, states)
    again = EpochMetricSums(tasks_per_epoch=1)
    again.load(sums.table())
    assert [again.of(epoch).states.tolist() for epoch in range(3)] == [states.tolist() for states in given]
    again.check(0, np.ones(2))
    again.check(2, np.ones(7))


def test_epochs_with_different_numbers_of_states_survive_regrouping_and_a_restart(job: Job) -> None:
    service = job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    client.push(push_of(*BATCHES[0]))
    shard = service.core.shard
    assert shard is not None and shard.groups[0].metrics is not None
    given = [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0], []]
    table = np.zeros((3, 8))
    for epoch, (row, states) in enumerate(zip(table, given, strict=True)):
        row[:4] = epoch, 2, 20, len(states)
        row[4 : 4 + len(states)] = states
    shard.groups[0].metrics.load(table)
    half = PARTITIONS // 2
    whole, dense = shard.groups[0].cut(), shard.signature.dense
    merged = joined([reduced(whole, bounds, dense) for bounds in (((0, half),), ((half, PARTITIONS),))], dense)
    shard.groups[0].metrics.load(merged.metrics)
    snapshot(job, 1)
    die(service)
    restored = job.start().core.shard
    assert restored is not None and restored.groups[0].metrics is not None
    assert [restored.groups[0].metrics.of(epoch).states.tolist() for epoch in range(3)] == given


def test_sums_are_restored_with_the_ledger(job: Job) -> None:
    service = job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    for batch in BATCHES[:3]:
        client.push(replace(push_of(*batch), metric_states=states_of(*batch)))
    snapshot(job, 1)
    die(service)
    job.start()
    found = job.client(signature()).read_metrics(0)
    assert (found.batches, np.frombuffer(found.states).tolist()) == (3, expected(list(BATCHES[:3])))


def test_requests_and_replies_about_metrics_travel() -> None:
    request = ReadMetrics(plan="p", placement_version=4, epoch=7)
    assert decode_request(*encode_request(request)) == request
    reply, _ = decode_reply(*encode_reply(MetricsReply(complete=True, batches=2, records=9, states=np.ones(3)), "i"))
    assert isinstance(reply, MetricsReply)
    assert (reply.complete, reply.batches, reply.records, reply.states.tolist()) == (True, 2, 9, [1.0] * 3)
    push = decode_request(*encode_request(measured(*BATCHES[0])))
    assert isinstance(push, Push)
    np.testing.assert_array_equal(push.metric_states, states_of(*BATCHES[0]))
