"""Rings of real sockets within one process: members that work, die and join."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tests.deadline import DEADLINE_S
from tests.unit.worker_ring.toy import SIZE, ToyMaster, ToyWorker

from elasticdl.shared.names import TaskId
from elasticdl.worker.ring.replica_set import RingClosedError

WIDTH = 3


@contextmanager
def ring_of(members: int, **options: Any) -> Iterator[list[ToyWorker]]:
    master = ToyMaster(expected=members)
    workers = [
        ToyWorker(master, f"worker-{number}", f"i{number}", node="ab"[number % 2], **options)
        for number in range(members)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.ring.close()


def train(workers: Sequence[ToyWorker]) -> None:
    """All members train to the end."""
    threads = [threading.Thread(target=worker.train, args=(WIDTH,)) for worker in workers]
    for worker, thread in zip(workers, threads, strict=True):
        worker.ring.start()
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


def check(workers: Sequence[ToyWorker]) -> None:
    """Every batch is absorbed once, and the replicas are equal."""
    for worker in workers:
        assert worker.errors == []
        assert worker.state.absorbed == [(task, batch) for batch in range(worker.state.rounds) for task in range(WIDTH)]
        assert np.array_equal(worker.state.weights, workers[0].state.weights)


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_members_commit_every_batch_once_and_stay_equal(members: int) -> None:
    with ring_of(members) as workers:
        train(workers)
        check(workers)
        assert all(worker.ring.figures.rounds == worker.state.rounds for worker in workers)


def test_double_sums_do_not_depend_on_the_members() -> None:
    weights = []
    for members in (1, 2, 3):
        with ring_of(members, is_deterministic=True) as workers:
            train(workers)
            weights.append(workers[-1].state.weights)
    assert np.array_equal(weights[0], weights[1])
    assert np.array_equal(weights[0], weights[2])


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_survivors_finish_the_round_of_a_death(victim: int, step: int) -> None:
    """The member dies with the sum of a round, which others may lack."""
    with ring_of(3) as workers:

        def die(applied: int) -> None:
            if applied == step:
                workers[victim].die()

        workers[victim].state.before_apply = die
        train(workers)
        check([worker for number, worker in enumerate(workers) if number != victim])


def test_one_of_three_survives_two_deaths() -> None:
    with ring_of(3) as workers:
        for victim in (0, 1):

            def die(applied: int, victim: int = victim) -> None:
                if applied == 1 + victim:
                    workers[victim].die()

            workers[victim].state.before_apply = die
        train(workers)
        check(workers[2:])


@pytest.mark.parametrize("results", [0, 1, 2])
def test_the_leader_dies_while_a_joiner_follows_it(results: int) -> None:
    """The joiner has some of its results, and continues with the next leader."""
    with ring_of(3, batches=40) as workers:
        late = ToyWorker(workers[0].master, "worker-3", "i3", batches=40)
        thread = threading.Thread(target=late.train, args=(WIDTH,))
        applied: list[int] = []

        def join(step: int) -> None:
            if step == 5:
                late.ring.start()
                thread.start()

        def follow(step: int) -> None:
            applied.append(step)
            if len(applied) == results + 1:
                threading.Thread(target=workers[0].die).start()  # The state of the joiner is locked here.

        workers[2].state.before_apply = join
        late.state.before_apply = follow
        try:
            train(workers)
            thread.join(120)
            assert not thread.is_alive()
            check([*workers[1:], late])
            assert len(applied) > results
        finally:
            late.ring.close()


def test_a_new_member_copies_the_state() -> None:
    with ring_of(2, batches=30) as workers:
        late = ToyWorker(workers[0].master, "worker-2", "i2", batches=30)
        started = threading.Thread(target=late.train, args=(WIDTH,))

        def join(applied: int) -> None:
            if applied == 5:
                late.ring.start()
                started.start()

        workers[1].state.before_apply = join
        try:
            train(workers)
            started.join(120)
            assert not started.is_alive()
            check([*workers, late])
            assert late.ring.figures.rounds > 0
        finally:
            late.ring.close()


def test_the_others_continue_when_a_member_leaves() -> None:
    with ring_of(3, batches=20) as workers:
        master = workers[0].master

        def leave() -> None:
            workers[0].ring.leave()
            workers[0].die()

        leaving = threading.Thread(target=leave)
        workers[2].state.before_apply = lambda applied: leaving.start() if applied == 4 else None
        train(workers)
        leaving.join(60)
        check(workers[1:])
        assert master.number == 2


def test_a_member_that_is_asked_to_leave_waits_for_no_generation() -> None:
    with ring_of(2) as (member, _):  # The other one never starts, so no generation is formed.
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                member.ring.next_batch(TaskId(0), 1)
            except RingClosedError as error:
                errors.append(error)

        waiting = threading.Thread(target=ask)
        member.ring.start()
        waiting.start()
        member.ring.ask_to_leave()
        waiting.join(DEADLINE_S)
        assert not waiting.is_alive()
        assert [str(error) for error in errors] == ["this worker has left the ring"]


@pytest.mark.parametrize("victim", [0, 2])
def test_a_replica_with_a_flipped_bit_is_told_by_tensor_and_copies_the_others(victim: int) -> None:
    with ring_of(3, batches=12, check_steps=4) as workers:
        state = workers[victim].state

        def flip(applied: int) -> None:
            if applied == 5:
                state.weights.view(np.uint64)[SIZE // 2 + 7] ^= 1 << 50

        state.before_apply = flip
        train(workers)
        check(workers)
        found = [worker.differences for worker in workers]
        assert found == [[(8, 2)] if number == victim else [] for number in range(3)]


def test_a_difference_is_found_after_the_last_round() -> None:
    with ring_of(3, batches=4, check_steps=100) as workers:
        state = workers[1].state

        def flip(applied: int) -> None:
            if applied == 3:
                state.weights[0] += 1

        state.before_apply = flip
        train(workers)
        deadline_s = time.monotonic() + DEADLINE_S
        while not workers[1].differences or not np.array_equal(state.weights, workers[0].state.weights):
            assert time.monotonic() < deadline_s
            workers[1].ring.wait_until_open(TaskId(0), 99, 0.02)
        check(workers)
