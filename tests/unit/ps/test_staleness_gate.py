"""Bounded staleness: which pulls the gate admits, and what happens to batches that are never pushed."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deadline import DEADLINE_S
from tests.unit.ps.cores import core_of, wire_push
from tests.unit.ps.example import PLAN

from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.staleness_gate import ACTIVE_S, CONTESTED_S, BatchKey, GateSettings, StalenessGate
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.messages import RefusalKind

OVERDUE_S = GateSettings(max_staleness=0).overdue_s


def gate_of(bound: int, *, grads_to_wait: int = 1) -> StalenessGate:
    return StalenessGate(GateSettings(max_staleness=bound, grads_to_wait=grads_to_wait))


def pull(gate: StalenessGate, *keys: BatchKey, now_s: float = 0.0) -> list[bool]:
    """Whether each pull is admitted; those that are, are made."""
    admitted = []
    for key in keys:
        sender = key[0] + 1
        admitted.append(gate.admits(key, accumulated=0, now_s=now_s, sender=sender))
        if admitted[-1]:
            gate.on_pulled(key, accumulated=0, now_s=now_s, sender=sender)
    return admitted


def push(gate: StalenessGate, key: BatchKey, *, is_empty: bool = False, now_s: float = 0.0) -> None:
    gate.on_pushed(key, is_empty=is_empty, now_s=now_s)


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_as_many_batches_are_outstanding_as_each_may_become_stale_by(bound: int) -> None:
    gate = gate_of(bound)
    assert pull(gate, *((task, 0) for task in range(4))) == [task <= bound for task in range(4)]


def test_a_worker_that_is_ahead_waits_for_the_stalest_batch() -> None:
    gate = gate_of(1)
    assert pull(gate, (0, 0), (1, 0)) == [True, True]
    push(gate, (1, 0))
    assert pull(gate, (1, 1)) == [False], "batch 0 of task 0 would be 2 updates late"
    push(gate, (0, 0))
    assert pull(gate, (1, 1), (0, 1)) == [True, True]


def test_the_gate_counts_the_updates_that_other_workers_are_expected_to_make_first() -> None:
    gate = gate_of(2)
    assert gate.updates_ahead((0, 0), accumulated=0) == 0
    pull(gate, (0, 0), (1, 0))
    assert gate.updates_ahead((1, 0), accumulated=0) == 1, "asked again, it does not count itself"
    assert gate.updates_ahead((2, 0), accumulated=0) == 2
    push(gate, (0, 0))
    assert gate.updates_ahead((2, 0), accumulated=0) == 1
    assert gate.admits((2, 0), accumulated=0, now_s=10 * OVERDUE_S, sender=3)
    assert gate.updates_ahead((2, 0), accumulated=0) == 0, "the worker of (1, 0) is slow or dead"


def test_accumulated_batches_make_a_part_of_an_update() -> None:
    gate = gate_of(1, grads_to_wait=3)
    pull(gate, (0, 0), (1, 0))
    assert [gate.updates_ahead((2, 0), accumulated=count) for count in range(3)] == [0, 1, 1]


def test_a_batch_without_gradients_makes_nothing_staler() -> None:
    gate = gate_of(1)
    pull(gate, (0, 0), (1, 0))
    push(gate, (1, 0), is_empty=True)
    assert pull(gate, (1, 1)) == [True]


def test_several_batches_make_one_update() -> None:
    gate = gate_of(0, grads_to_wait=3)
    assert pull(gate, (0, 0), (1, 0), (2, 0), (3, 0)) == [True, True, True, False]
    gate = gate_of(0, grads_to_wait=3)
    assert gate.admits((0, 0), accumulated=2, now_s=0.0, sender=1)
    gate.on_pulled((0, 0), accumulated=2, now_s=0.0, sender=1)
    assert not gate.admits((1, 0), accumulated=2, now_s=0.0, sender=2), "the next batch makes the update"


@given(
    bound=st.integers(0, 4),
    grads_to_wait=st.integers(1, 3),
    turns=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=80),
)
def test_no_batch_is_later_than_the_bound(bound: int, grads_to_wait: int, turns: list[tuple[int, bool]]) -> None:
    """Workers pull and push in any order, sometimes with a second attempt, of which either may come first."""
    gate = gate_of(bound, grads_to_wait=grads_to_wait)
    pulled: dict[int, list[int]] = {}
    numbers = dict.fromkeys(range(5), 0)
    learned = 0
    for task, repeats in turns:
        key = (task, numbers[task])
        accumulated = learned % grads_to_wait
        if task not in pulled or repeats:
            if gate.admits(key, accumulated=accumulated, now_s=0.0, sender=task):
                gate.on_pulled(key, accumulated=accumulated, now_s=0.0, sender=task)
                pulled.setdefault(task, []).append(learned // grads_to_wait)
            continue
        assert learned // grads_to_wait - min(pulled.pop(task)) <= bound
        push(gate, key)
        learned += 1
        numbers[task] += 1
    accumulated = learned % grads_to_wait
    assert gate.admits((9, 0), accumulated=accumulated, now_s=0.0, sender=9) or pulled, "one worker may always continue"


def test_a_batch_that_is_overdue_is_ignored() -> None:
    gate = gate_of(0)
    pull(gate, (0, 0))
    assert pull(gate, (1, 0), now_s=OVERDUE_S - 1.0) == [False]
    assert pull(gate, (1, 0), now_s=OVERDUE_S + 1.0) == [True]
    assert gate.bounded == {(1, 0)}


def test_slow_batches_are_not_overdue_soon() -> None:
    gate = gate_of(0)
    pull(gate, (0, 0))
    push(gate, (0, 0), now_s=20.0)
    pull(gate, (0, 1), now_s=20.0)
    assert pull(gate, (1, 0), now_s=210.0) == [False]
    assert pull(gate, (1, 0), now_s=230.0) == [True]


def test_a_batch_whose_task_has_another_worker_is_overdue_soon() -> None:
    gate = gate_of(0)
    pull(gate, (0, 0))
    gate.on_task_begun(0)
    assert pull(gate, (1, 0), now_s=CONTESTED_S / 2) == [False]
    assert pull(gate, (1, 0), now_s=CONTESTED_S * 2) == [True]


def test_a_batch_whose_connection_ended_delays_no_pull() -> None:
    gate = gate_of(1)
    for sender, key in enumerate([(0, 0), (1, 0)], start=1):
        gate.on_pulled(key, accumulated=0, now_s=0.0, sender=sender)
    assert pull(gate, (2, 0)) == [False]
    gate.on_disconnected(1)
    assert pull(gate, (2, 0)) == [True]
    assert gate.bounded == {(1, 0), (2, 0)}


def test_a_worker_that_pulls_for_another_batch_does_not_push_the_former() -> None:
    gate = gate_of(0)
    gate.on_pulled((0, 1), accumulated=0, now_s=0.0, sender=1)
    assert not gate.admits((1, 0), accumulated=0, now_s=0.0, sender=2)
    assert gate.admits((0, 3), accumulated=0, now_s=0.0, sender=1), "another attempt was ahead of it"
    assert gate.admits((1, 0), accumulated=0, now_s=0.0, sender=2)


def test_two_attempts_share_the_older_pull() -> None:
    gate = gate_of(1)
    pull(gate, (0, 0), (1, 0))
    push(gate, (1, 0))
    assert pull(gate, (0, 0)) == [True]
    assert pull(gate, (1, 1)) == [False], "the first attempt may be absorbed"


def test_a_finished_task_has_no_outstanding_batches() -> None:
    gate = gate_of(0)
    pull(gate, (0, 3))
    gate.on_task_finished(0)
    assert pull(gate, (1, 0)) == [True]


def by_workers() -> StalenessGate:
    return StalenessGate(GateSettings.by_workers())


def test_by_workers_each_waits_for_the_batches_of_the_others() -> None:
    gate = by_workers()
    assert pull(gate, (0, 0), (1, 0), (2, 0)) == [True, True, True]
    assert gate.bound == 2
    push(gate, (1, 0))
    assert pull(gate, (1, 1)) == [False], "batches 0 of tasks 0 and 2 would be 3 updates late"
    push(gate, (0, 0))
    assert pull(gate, (0, 1), (1, 1)) == [False, False]
    push(gate, (2, 0))
    assert pull(gate, (0, 1), (1, 1), (2, 1)) == [True, True, True]


def test_by_workers_a_worker_that_joins_is_admitted_at_once() -> None:
    gate = by_workers()
    pull(gate, (0, 0), (1, 0))
    push(gate, (1, 0))
    assert pull(gate, (1, 1)) == [False]
    assert pull(gate, (2, 0)) == [True], "three workers train now"


def test_by_workers_one_worker_never_waits() -> None:
    gate = by_workers()
    for batch in range(3):
        assert pull(gate, (0, batch)) == [True]
        push(gate, (0, batch))
    assert gate.bound == 0


def test_by_workers_one_that_no_longer_asks_does_not_count() -> None:
    gate = by_workers()
    pull(gate, (0, 0), (1, 0))
    push(gate, (0, 0))
    assert pull(gate, (0, 1)) == [False]
    push(gate, (1, 0), now_s=2 * ACTIVE_S)
    assert pull(gate, (1, 1), now_s=2 * ACTIVE_S) == [True]
    assert gate.bound == 0, "only task 1 trains"


def bounded(bound: int) -> PsCore:
    return core_of("sgd", policy=UpdatePolicy(gate=GateSettings(max_staleness=bound)))


def pull_for(core: PsCore, task: int, batch: int, *, pin: int = 0) -> int:
    """The update count of the weights for a batch."""
    batch_of = None if pin else (task, batch)
    request = messages.Pull(plan=PLAN.fingerprint, placement_version=1, pin=pin, dense=True, tables=(), batch=batch_of)
    return core.pull(request, sender=task + 1).iteration


def test_a_pull_is_refused_until_the_other_batch_is_pushed() -> None:
    core = bounded(0)
    assert pull_for(core, 0, 0) == 0
    with pytest.raises(RefusedError) as refused:
        pull_for(core, 1, 0)
    assert refused.value.refusal.kind is RefusalKind.PULL_DELAYED
    core.push(wire_push(0, 0))
    assert pull_for(core, 1, 0) == 1
    assert core.push(replace(wire_push(1, 0), base_iteration=1)).staleness == 0


def test_other_batches_may_wait_for_their_update_on_other_ps() -> None:
    """The other ps was restored: one batch waits there, and none here. The second push would make an update there."""
    policy = UpdatePolicy(grads_to_wait=2, gate=GateSettings(max_staleness=0, grads_to_wait=2))
    core = core_of("sgd", policy=policy)
    pull_for(core, 0, 0)
    pull_for(core, 1, 0)
    core = core_of("sgd", policy=policy, ps=2)
    pull_for(core, 0, 0)
    with pytest.raises(RefusedError, match="staler than the bound"):
        pull_for(core, 1, 0)


def waiting_pull(core: PsCore) -> threading.Thread:
    """A second worker's pull, on a thread that ends when it may be answered."""
    request = messages.Pull(plan=PLAN.fingerprint, placement_version=1, pin=0, dense=True, tables=(), batch=(1, 0))
    waiting = threading.Thread(
        target=core.await_admission, args=(request,), kwargs={"now_s": 0.0, "timeout_s": 60.0, "sender": 2}
    )
    waiting.start()
    return waiting


def test_a_pull_waits_in_the_ps() -> None:
    core = bounded(0)
    pull_for(core, 0, 0)
    waiting = waiting_pull(core)
    core.push(wire_push(0, 0))
    waiting.join(DEADLINE_S)
    assert not waiting.is_alive()


def test_a_pull_no_longer_waits_when_the_other_connection_ends() -> None:
    core = bounded(0)
    pull_for(core, 0, 0)
    waiting = waiting_pull(core)
    core.pulls.on_disconnected(1)
    waiting.join(DEADLINE_S)
    assert not waiting.is_alive()


def test_pulls_of_no_batch_are_not_delayed() -> None:
    core = bounded(0)
    pull_for(core, 0, 0)
    core.open_pin(3)
    assert pull_for(core, 1, 0, pin=3) == 0


def test_only_the_owner_of_partition_0_is_the_gate() -> None:
    core = bounded(0)
    assert core.pulls.gate is not None
    pull_for(core, 0, 0)
    core.adopt(core.placement.moved(((0, 1),), to=1, version=2))
    assert core.pulls.gate is None
