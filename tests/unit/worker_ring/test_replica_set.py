"""Rings of real sockets within one process."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.unit.worker_ring.toy import ToyMaster, ToyWorker


def train(workers: list[ToyWorker], width: int) -> None:
    threads = [
        threading.Thread(target=worker.train, args=([task for task in range(width) if task % len(workers) == number],))
        for number, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_members_commit_every_batch_once_and_stay_equal(members: int) -> None:
    master = ToyMaster(expected=members)
    workers = [ToyWorker(master, f"worker-{number}", f"i{number}") for number in range(members)]
    try:
        for worker in workers:
            worker.ring.start()
        train(workers, width=3)
        first = workers[0].state
        for worker in workers:
            assert worker.errors == []
            assert worker.state.absorbed == [(task, batch) for batch in range(4) for task in range(3)]
            assert np.array_equal(worker.state.weights, first.weights)
            assert worker.ring.figures.rounds == 4
    finally:
        for worker in workers:
            worker.ring.close()


def test_double_sums_do_not_depend_on_the_members() -> None:
    weights = []
    for members in (1, 2, 3):
        master = ToyMaster(expected=members)
        workers = [
            ToyWorker(master, f"worker-{number}", f"i{number}", is_deterministic=True) for number in range(members)
        ]
        for worker in workers:
            worker.ring.start()
        train(workers, width=3)
        weights.append(workers[-1].state.weights)
        for worker in workers:
            worker.ring.close()
    assert np.array_equal(weights[0], weights[1])
    assert np.array_equal(weights[0], weights[2])
