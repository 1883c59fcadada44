"""A replica commits a round as a ps does in synchronous jobs, and copies itself into another worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.ps.example import BATCHES, PLAN, initial_dense, push_of, signature, spec

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.shared.errors import InvariantError, UserError
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.spec import JobSpec, Strategy
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import TaskId
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.wire import messages
from elasticdl.worker.ports import Doubles
from elasticdl.worker.ps_client import PullDelayedError, PushRequest
from elasticdl.worker.ps_client.splitter import Splitter
from elasticdl.worker.replica.state import Replica
from elasticdl.worker.ring.ports import BatchFacts

COHORT = 3
SPEC: JobSpec = replace(spec("memory://storage"), synchronous=True, grads_to_wait=COHORT, strategy=Strategy.ALLREDUCE)
ROUNDS = Rounds(plan=PLAN, tasks_per_cohort=COHORT)
EMPTY = {(0, 1), (5, 2), (3, 0)}
"""Batches without gradients; the last one is alone in its round."""


def model(optimizer: str = "adam") -> ModelSignature:
    return replace(signature(optimizer), tables=())


def splitter(signature: ModelSignature | None = None) -> Splitter:
    return Splitter(signature or model(), PLAN.fingerprint, Placement.even(1))


def request_of(task: int, batch: int) -> PushRequest:
    metrics = np.array([task + batch, 1.0])
    return replace(push_of(task, batch, empty=(task, batch) in EMPTY), rows={}, magnitudes={}, metric_states=metrics)


def facts_of(request: PushRequest) -> BatchFacts:
    return BatchFacts(
        task=request.task,
        batch=request.batch,
        batches=request.batches,
        records=request.records,
        checksum=request.checksum,
        is_empty=request.dense_gradient is None,
        statistics=request.statistics_update,
        metric_states=request.metric_states,
    )


def initialised(core: PsCore, signature: ModelSignature | None = None) -> None:
    request = splitter(signature).initialise(initial_dense()).requests[0]
    assert isinstance(request, messages.Initialise)
    core.initialise(request)
    core.start_serving()


def replica(job: JobSpec = SPEC, *, has_model: bool = True, optimizer: str = "adam") -> Replica:
    made = Replica(job, model(optimizer), SystemClock())
    if has_model:
        initialised(made.core)
    return made


def rounds() -> list[list[tuple[int, int]]]:
    """All rounds in the order of their updates."""
    found = dict.fromkeys((*ROUNDS.members(TaskId(task), batch), batch) for task, batch in ordered())
    return [[(task, key[-1]) for task in key[:-1]] for key in found]


def ordered() -> list[tuple[int, int]]:
    return sorted(BATCHES, key=lambda one: ROUNDS.key(TaskId(one[0]), one[1]))


def commit(state: Replica, batches: Sequence[tuple[int, int]]) -> None:
    requests = [request_of(task, batch) for task, batch in batches]
    total: Doubles | None = None
    for request in requests:
        if request.dense_gradient is not None:
            total = np.zeros(state.gradient_size) if total is None else total
            start, power = state.magnitudes
            weights = np.where(np.arange(total.size) < start, request.records, request.records**power)
            total += weights * request.dense_gradient.astype(np.float64)
    state.apply([facts_of(request) for request in requests], total)


def ps_after_all() -> PsCore:
    """A ps that has absorbed every batch, one by one."""
    core = PsCore(plan=PLAN, placement=Placement.even(1), number=0, policy=UpdatePolicy.of(SPEC))
    initialised(core)
    for task, batch in ordered():
        push = splitter().push(request_of(task, batch)).requests[0]
        assert isinstance(push, messages.Push)
        core.push(push)
    return core


def test_rounds_give_bit_for_bit_the_state_of_a_ps() -> None:
    state = replica()
    for batches in rounds():
        commit(state, batches)
    ours, theirs = state.core.shard, ps_after_all().shard
    assert ours is not None
    assert theirs is not None
    one, other = ours.groups[0].cut(), theirs.groups[0].cut()
    np.testing.assert_array_equal(one.dense.state, other.dense.state)
    np.testing.assert_array_equal(one.dense.fixed, other.dense.fixed)
    np.testing.assert_array_equal(one.metrics, other.metrics)
    assert (one.ledger, one.iteration) == (other.ledger, other.iteration)


def test_the_step_counts_rounds_also_after_a_copy() -> None:
    state = replica()
    for number, batches in enumerate(rounds()):
        assert state.step == number
        copy = replica(has_model=False)
        copy.load(state.save()())
        assert (copy.has_model, copy.step) == (True, number)
        commit(state, batches)
    assert state.step == len(rounds())


def test_a_copy_continues_like_the_original() -> None:
    state, copy = replica(), replica(has_model=False)
    all_rounds = rounds()
    for batches in all_rounds[:3]:
        commit(state, batches)
    copy.load(state.save()())
    for batches in all_rounds[3:]:
        commit(state, batches)
        commit(copy, batches)
    assert [part.tobytes() for part in copy.save()()[1:-1]] == [part.tobytes() for part in state.save()()[1:-1]]


def test_a_copy_of_another_model_is_refused() -> None:
    with pytest.raises(UserError, match="another model"):
        replica(has_model=False, optimizer="sgd").load(replica().save()())


def test_weights_are_given_for_the_open_round_only() -> None:
    state = replica()
    first, second = rounds()[:2]
    np.testing.assert_array_equal(state.pull(first[0]).dense, initial_dense())
    with pytest.raises(PullDelayedError):
        state.pull(second[0])
    assert state.is_open(TaskId(first[0][0]), first[0][1])
    assert not state.is_open(TaskId(second[0][0]), second[0][1])
    commit(state, first)
    assert not np.array_equal(state.pull(second[0]).dense, initial_dense())
    assert state.next_batch(TaskId(0), 4) == 1


def test_no_weights_come_from_a_replica_without_a_model() -> None:
    state = replica(has_model=False)
    assert not state.has_model
    with pytest.raises(PullDelayedError):
        state.pull((0, 0))


def test_what_is_not_finite_is_named_before_it_is_contributed() -> None:
    request = request_of(0, 0)
    assert request.dense_gradient is not None
    assert replica().problem_of(request) == ""
    request.dense_gradient[3] = np.nan
    assert "not finite" in replica().problem_of(request)


def test_a_round_that_is_not_the_next_one_ends_the_process() -> None:
    with pytest.raises(InvariantError):
        commit(replica(), rounds()[1])


def test_all_tasks_are_there_after_the_last_round() -> None:
    state = replica()
    for batches in rounds():
        assert not state.has_all(0)
        commit(state, batches)
    assert state.has_all(0)


def test_checksums_name_the_variable_that_differs() -> None:
    state, other = replica(), replica()
    assert state.checksums() == other.checksums()
    assert len(state.checksums()) == len(model("adam").dense)
    assert other.core.shard is not None
    dense = other.core.shard.groups[0].dense
    cut = dense.cut()
    cut.state.reshape(-1).view(np.uint32)[0] ^= 1 << 20
    dense.load(cut)
    assert sum(one != same for one, same in zip(state.checksums(), other.checksums(), strict=True)) == 1
