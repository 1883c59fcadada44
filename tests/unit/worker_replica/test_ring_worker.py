"""Workers of a ring as a whole: the model is served, handed over, copied, and committed by all."""

from __future__ import annotations

import numpy as np
from tests.deadline import DEADLINE_S
from tests.unit.worker_replica.rings import COHORT, Ring, request_of

from elasticdl.shared.names import TaskId
from elasticdl.worker.replica.ring_worker import RingWorker


def train_round(*workers: RingWorker, batch: int) -> None:
    """The first cohort's tasks are contributed in turns, and all workers commit the round."""
    for task in range(COHORT):
        outcome = workers[task % len(workers)].servers.push(request_of(task, batch))
        assert outcome.next_batch == batch + 1
    for worker in workers:
        worker.servers.pull_when_open((0, batch + 1), DEADLINE_S).release()


def test_the_first_worker_serves_the_model_and_commits_rounds_alone(ring: Ring) -> None:
    worker = ring.start("worker-0")
    ring.form("worker-0")
    ring.initialise()
    assert worker.wait_until_member(DEADLINE_S)
    train_round(worker, batch=0)
    pulled = ring.client.pull({})
    np.testing.assert_array_equal(pulled.dense, worker.replica.pull((0, 1)).dense)
    assert pulled.step == COHORT


def test_a_new_generation_reports_the_live_ledger_under_a_new_incarnation(ring: Ring) -> None:
    worker = ring.start("worker-0")
    ring.form("worker-0")
    ring.initialise()
    assert worker.wait_until_member(DEADLINE_S)
    before = worker.servers.next_batch(TaskId(0), 4).credits
    train_round(worker, batch=0)
    ring.form("worker-0")
    (group,) = ring.started(2).ledgers
    assert group.ledger.step == COHORT
    assert worker.servers.next_batch(TaskId(0), 4).credits != before
    assert ring.snapshot().ledgers[0].ledger.step == COHORT


def test_a_joiner_copies_the_model_and_takes_over_when_the_leader_leaves(ring: Ring) -> None:
    first = ring.start("worker-0")
    ring.form("worker-0")
    ring.initialise()
    assert first.wait_until_member(DEADLINE_S)
    train_round(first, batch=0)
    second = ring.start("worker-1")
    ring.form("worker-0", "worker-1")
    assert second.wait_until_member(DEADLINE_S)
    train_round(first, second, batch=1)
    np.testing.assert_array_equal(first.replica.pull((0, 2)).dense, second.replica.pull((0, 2)).dense)
    ring.workers.pop("worker-0").close()
    ring.form("worker-1")
    (group,) = ring.started(3).ledgers
    assert group.ledger.step == 2 * COHORT
    train_round(second, batch=2)
    np.testing.assert_array_equal(ring.client.pull({}).dense, second.replica.pull((0, 3)).dense)
