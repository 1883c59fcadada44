"""Workers against ps over real sockets: one looks like three, and a restarted one is found again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np
import pytest
from tests.unit.ps.example import BATCHES, PLAN, initial_dense, push_of, signature
from tests.unit.ps.servers import Servers, weights

from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.staleness_gate import GateSettings
from elasticdl.shared.errors import ProtocolError, UserError
from elasticdl.shared.names import PodName, TaskId
from elasticdl.shared.process.procedures import Procedure
from elasticdl.worker.ps_client import PinLostError, PsClient, PullDelayedError, PushOutcome
from elasticdl.worker.ps_client.connection import Receive, Send

R = TypeVar("R")

PS_0, PS_1 = PodName("ps-0"), PodName("ps-1")


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    servers = Servers(request.param if hasattr(request, "param") else 1)
    yield servers
    servers.close()
    assert [error for one in servers.ps for error in one.fatal] == []


def begin(servers: Servers, optimizer: str = "sgd") -> PsClient:
    client = servers.client(signature(optimizer))
    assert client.initialise(initial_dense())
    servers.start_serving()
    return client


def train(client: PsClient) -> list[PushOutcome]:
    return [client.push(push_of(task, batch)) for task, batch in BATCHES]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_two_and_three_ps_learn_the_same(optimizer: str) -> None:
    results = []
    for ps in (1, 2, 3):
        servers = Servers(ps)
        client = begin(servers, optimizer)
        outcomes = train(client)
        assert [outcome.next_batch for outcome in outcomes] == [batch + 1 for _, batch in BATCHES]
        assert set(outcomes[-1].credits) == set(servers.names)
        results.append(weights(client))
        servers.close()
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("servers", [1, 3], indirect=True)
def test_a_pull_brings_initial_values_in_the_callers_order(servers: Servers) -> None:
    client = begin(servers)
    everything = weights(client)
    np.testing.assert_array_equal(everything[0], initial_dense())
    ids = np.array([9, 3, 30, 4, 0], np.int64)
    pulled = client.pull({"b": ids[[1, 3]], "a": ids})
    np.testing.assert_array_equal(pulled.rows["a"], everything[1][ids])
    np.testing.assert_array_equal(pulled.rows["b"], everything[2][ids[[1, 3]]])
    pulled.release()
    np.testing.assert_array_equal(client.pull_rows("a", ids), everything[1][ids])


@pytest.mark.parametrize("servers", [1, 2], indirect=True)
def test_a_pull_in_the_same_round_trip_sees_the_push(servers: Servers) -> None:
    client = begin(servers)
    for batch in range(3):
        outcome, pulled, _ = client.push_and_pull(push_of(0, batch), {"a": np.arange(5)}, (0, batch + 1))
        assert outcome.next_batch == batch + 1
        assert pulled is not None and pulled.step == batch + 1
        pulled.release()


@pytest.mark.parametrize("servers", [1, 2], indirect=True)
def test_staleness_counts_the_updates_between_pull_and_push(servers: Servers) -> None:
    client, other = begin(servers), servers.client(signature())
    pulled = client.pull({})
    assert other.push(push_of(1, 0)).staleness == 0
    assert other.push(push_of(1, 1)).staleness == 1
    late = replace(push_of(0, 0), base_iterations=pulled.iterations)
    assert client.push(late).staleness == 2
    assert client.push(late).staleness is None
    pulled.release()


def test_a_bounded_job_pulls_from_the_gate_first_and_pushes_to_it_last() -> None:
    servers = Servers(2, policy=UpdatePolicy(gate=GateSettings(max_staleness=0)))
    client, other = begin(servers), servers.client(signature())
    pulled = client.pull({}, batch=(0, 0))
    with pytest.raises(PullDelayedError):
        other.pull({}, batch=(1, 0))
    client.push(replace(push_of(0, 0), base_iterations=pulled.iterations))
    other.pull({}, batch=(1, 0)).release()
    pulled.release()
    requests = [request for request in servers.requests if not request.startswith("Initialise")]
    assert requests == ["Pull 0", "Pull 1", "Pull 0", "Push 1", "Push 0", "Pull 0", "Pull 1"]
    servers.close()


def test_all_ps_predict_the_weights_of_one_moment() -> None:
    """A second worker's gradient will be applied after the first one's, so it gets the weights expected then."""
    answers = []
    for ps in (1, 3):
        servers = Servers(ps, policy=UpdatePolicy(gate=GateSettings.by_workers()))
        first = begin(servers, "adam")
        second = servers.client(signature("adam"))
        train(first)
        pulled = [client.pull({}, batch=(task, 0)) for task, client in enumerate((first, second))]
        present = weights(first)[0]
        np.testing.assert_array_equal(pulled[0].dense, present)
        assert (pulled[1].dense != present).any()
        answers.append(pulled[1].dense.copy())
        for each in pulled:
            each.release()
        servers.close()
    np.testing.assert_array_equal(answers[0], answers[1])


@pytest.mark.parametrize("has_gate", [False, True])
def test_a_push_leaves_for_all_ps_before_an_answer_is_awaited(has_gate: bool) -> None:
    policy = UpdatePolicy(gate=GateSettings(max_staleness=0)) if has_gate else UpdatePolicy()
    servers = Servers(3, policy=policy)
    client = begin(servers)
    client.pull({}, batch=(0, 0)).release()
    held: list[object] = []  # Connections on which a request waits to be sent together with the next one.

    def observed(procedure: Procedure[R]) -> Procedure[R]:
        step, held_when_receiving = next(procedure), 0
        try:
            while True:
                result = yield step
                if isinstance(step, Send):
                    held[:] = [wire for wire in held if wire is not step.wire] + [step.wire] * step.is_followed
                elif isinstance(step, Receive):
                    held_when_receiving = max(held_when_receiving, len(held))
                step = procedure.send(result)
        except StopIteration as stop:
            assert held_when_receiving == 0
            return cast("R", stop.value)

    outcome, _, _ = client._sockets.run(observed(client._calls.push_and_pull(push_of(0, 0), {}, (0, 1))))
    assert outcome.next_batch == 1
    servers.close()


def test_the_time_that_the_bound_delays_a_pull_is_told_apart_from_the_push_in_the_same_round_trip() -> None:
    servers = Servers(1, policy=UpdatePolicy(gate=GateSettings(max_staleness=0)))
    client, other = begin(servers), servers.client(signature())
    client.pull({}, batch=(0, 0)).release()
    outcome, pulled, pull_s = client.push_and_pull(push_of(0, 0), {}, (0, 1))
    assert pulled is not None
    pulled.release()
    assert other.push(push_of(1, 0)).next_batch == 1
    with pytest.raises(PullDelayedError):
        other.pull({}, batch=(1, 1))
    outcome, pulled, delayed_s = other.push_and_pull(push_of(1, 1), {}, (1, 2))
    assert outcome.next_batch == 2 and pulled is None
    assert delayed_s > pull_s > 0
    servers.close()


@pytest.mark.parametrize("servers", [2], indirect=True)
def test_a_restored_ps_does_not_make_the_others_count_more(servers: Servers) -> None:
    client = begin(servers)
    client.push(push_of(0, 0))
    servers.kill(1)
    servers.restart(1).core.start_serving()
    client.initialise(initial_dense())
    pulled = client.pull({})
    assert pulled.iterations == {PS_0: 1, PS_1: 0}
    assert client.push(replace(push_of(1, 0), base_iterations=pulled.iterations)).staleness == 0
    pulled.release()


@pytest.mark.parametrize("servers", [2], indirect=True)
def test_a_pull_behind_a_push_that_had_to_be_repeated_is_discarded(servers: Servers) -> None:
    client = begin(servers)
    servers.kill(1)
    servers.restart(1).core.start_serving()
    outcome, pulled, _ = client.push_and_pull(push_of(0, 0), {"a": np.arange(5)}, (0, 1))
    assert outcome.next_batch == 1
    assert pulled is None


@pytest.mark.parametrize("servers", [1, 2], indirect=True)
def test_a_pull_behind_a_batch_out_of_order_is_discarded(servers: Servers) -> None:
    client = begin(servers)
    outcome, pulled, _ = client.push_and_pull(push_of(0, 2), {"a": np.arange(5)}, (0, 3))
    assert outcome.next_batch == 0
    assert pulled is None
    assert all(not wire._waiting for wire in client._sockets._open), "its answers were received"


@pytest.mark.parametrize("servers", [2], indirect=True)
def test_a_restarted_ps_makes_the_worker_go_back(servers: Servers) -> None:
    client = begin(servers, "adam")
    first = [client.push(push_of(0, batch)) for batch in range(2)]
    servers.kill(1)
    reborn = servers.restart(1)
    waiting = ThreadPoolExecutor().submit(client.push, push_of(0, 2))
    assert client.initialise(initial_dense()) is False  # ps-0 has its values, ps-1 takes ours
    reborn.core.start_serving()
    outcome = waiting.result()
    assert outcome.next_batch == 0
    assert outcome.credits[PS_0] == first[0].credits[PS_0]
    assert outcome.credits[PS_1] == reborn.incarnation != first[0].credits[PS_1]
    assert client.next_batch(TaskId(0), 4).next_batch == 0
    received = [one.tensor_bytes for one in servers.ps]
    for batch in range(3):
        outcome = client.push(push_of(0, batch))
    assert outcome.next_batch == 3
    assert servers.ps[0].tensor_bytes == received[0]  # It has these batches: no bytes of them go to it again.
    assert servers.ps[1].tensor_bytes > received[1]
    client.push(push_of(0, 3))
    assert servers.ps[0].tensor_bytes > received[0]
    other = Servers(1)
    reference = begin(other, "adam")
    for batch in range(4):
        reference.push(push_of(0, batch))
    for mine, theirs in zip(weights(client), weights(reference), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    other.close()


def test_a_push_waits_until_the_ps_is_ready(servers: Servers) -> None:
    client = servers.client(signature())
    client.initialise(initial_dense())
    outcomes: list[PushOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(client.push(push_of(0, 0))))
    thread.start()
    servers.start_serving()
    thread.join()
    assert [outcome.next_batch for outcome in outcomes] == [1]


def test_a_ps_that_died_before_its_first_snapshot_is_initialised_again(servers: Servers) -> None:
    client = servers.client(signature())
    client.initialise(initial_dense())
    servers.kill(0)
    servers.restart(0).core.start_serving()
    assert client.push(push_of(0, 0)).next_batch == 1
    pulled = client.pull({})
    np.testing.assert_array_equal(pulled.dense[-2:], initial_dense()[-2:])
    pulled.release()


def test_two_workers_of_which_one_repeats_everything(servers: Servers) -> None:
    client, rival = begin(servers, "adam"), servers.client(signature("adam"))
    assert not rival.initialise(np.zeros_like(initial_dense()))
    threads = [threading.Thread(target=train, args=(one,)) for one in (client, rival)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shard = servers.ps[0].core.shard
    assert shard is not None
    record = shard.groups[0].ledger.record()
    assert (record.step, record.records) == (len(BATCHES), PLAN.records)
    assert record.checksum == sum(push_of(*batch).checksum for batch in BATCHES) % 2**64


@pytest.mark.parametrize("servers", [1, 2], indirect=True)
def test_what_is_not_finite_is_absorbed_by_no_ps(servers: Servers) -> None:
    client = begin(servers)
    before = weights(client)
    push = push_of(0, 0)
    _, rows = push.rows["b"]
    rows[0, 0] = np.inf
    outcome = client.push(push)
    assert outcome.not_finite
    assert outcome.next_batch == 0
    for mine, theirs in zip(weights(client), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_refusals_reach_the_worker(servers: Servers) -> None:
    client = begin(servers)
    with pytest.raises(UserError, match="plan another"):
        servers.client(signature(), plan="another").push(push_of(0, 0))
    with pytest.raises(UserError, match="another model"):
        servers.client(signature("adam")).initialise(initial_dense())
    with pytest.raises(ProtocolError, match="records by the plan"):
        client.push(replace(push_of(0, 0), records=1))
    with pytest.raises(PinLostError):
        client.pull({}, pin=3)
    assert client.push(push_of(0, 0)).next_batch == 1


def test_a_model_is_read_from_the_named_instances_only(servers: Servers) -> None:
    client = begin(servers)
    audited: dict[str, str] = {name: one.incarnation for name, one in zip(servers.names, servers.ps, strict=True)}
    client.pull({}, only=audited).release()
    assert client.pull_rows("a", np.arange(2), only=audited).shape[0] == 2
    other = {**audited, servers.names[0]: "another"}
    with pytest.raises(PinLostError, match="another"):
        client.pull({}, only=other)
    with pytest.raises(PinLostError, match="another"):
        client.pull_rows("a", np.arange(2), only=other)


def test_gradients_are_accumulated_alike_on_three_ps() -> None:
    results = []
    for ps in (1, 3):
        servers = Servers(ps, policy=UpdatePolicy(grads_to_wait=3))
        client = begin(servers, "adam")
        train(client)
        results.append(weights(client))
        servers.close()
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("servers", [2], indirect=True)
def test_initial_values_are_split_anew_when_the_placement_changes(servers: Servers) -> None:
    client = servers.client(signature())
    client.initialise(initial_dense())
    servers.kill(1)
    servers.restart(1)
    servers.placement = replace(servers.placement, version=2)
    for one in servers.ps:
        one.core.adopt(servers.placement)
    servers.start_serving()
    assert client.push(push_of(0, 0)).next_batch == 1
    pulled = client.pull({})
    np.testing.assert_array_equal(pulled.dense[-2:], initial_dense()[-2:])
    pulled.release()
