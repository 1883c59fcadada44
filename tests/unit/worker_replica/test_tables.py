"""A ring of workers beside ps with tables: a batch is in the ledgers of both, once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.deadline import DEADLINE_S
from tests.unit.ps.example import push_of
from tests.unit.ps.jobs import die, snapshot
from tests.unit.worker_replica.rings import COHORT, Ring

from elasticdl.shared.names import TaskId
from elasticdl.shared.wire.messages import Floats
from elasticdl.worker.ps_client.dense_and_tables import DenseAndTables
from elasticdl.worker.replica.ring_worker import RingWorker

IDS = {"a": np.arange(40, dtype=np.int64), "b": np.arange(17, dtype=np.int64)}


@pytest.fixture
def ring() -> Iterator[Ring]:
    """A ring of two workers beside one ps."""
    made = Ring(ps=1)
    for name in ("worker-0", "worker-1"):
        made.start(name)
    made.form("worker-0", "worker-1")
    made.initialise()
    for worker in made.workers.values():
        assert worker.wait_until_member(DEADLINE_S)
    yield made
    made.close()


def rows_for(worker: RingWorker, task: int, batch: int) -> Floats:
    """The rows that a worker computes a batch with."""
    worker.servers.pull_when_open((task, batch), DEADLINE_S).release()
    pulled = worker.servers.pull(IDS, batch=(task, batch))
    rows = pulled.rows["a"].copy()
    pulled.release()
    return rows


def batches_of_ps(ring: Ring) -> int:
    return ring.tables[-1].core.step


def test_both_ledgers_have_every_batch_of_a_round_and_rows_move_with_the_next_one(ring: Ring) -> None:
    workers = list(ring.workers.values())
    before = rows_for(workers[0], 0, 0)
    for task in range(COHORT):
        outcome = workers[task % 2].servers.push(push_of(task, 0))
        assert outcome.next_batch == 1
        assert outcome.credits.keys() == {"ps-0", "ps-1"}
    after = rows_for(workers[0], 0, 1)
    assert (after != before).any()
    np.testing.assert_array_equal(rows_for(workers[1], 1, 1), after)
    assert batches_of_ps(ring) == workers[0].replica.core.step == COHORT
    assert isinstance(ring.client, DenseAndTables)
    pulled = ring.client.pull(IDS)
    np.testing.assert_array_equal(pulled.rows["a"], after)
    np.testing.assert_array_equal(pulled.dense, workers[0].replica.pull((0, 1)).dense)


def test_a_batch_that_only_the_ps_have_is_repeated_with_the_same_rows(ring: Ring) -> None:
    lives = ring.workers["worker-1"]
    before = rows_for(lives, 0, 0)
    assert isinstance(ring.client, DenseAndTables)
    for task in range(COHORT):  # The last one has pushed rows, and not contributed.
        if task < COHORT - 1:
            lives.servers.push(push_of(task, 0))
        else:
            ring.client.tables.push(push_of(task, 0, dense=False))
    ring.workers.pop("worker-0").close()
    ring.form("worker-1")
    assert lives.wait_until_member(DEADLINE_S)
    assert lives.servers.next_batch(TaskId(COHORT - 1), 4).next_batch == 0
    np.testing.assert_array_equal(rows_for(lives, COHORT - 1, 0), before)
    assert lives.servers.push(push_of(COHORT - 1, 0)).next_batch == 1
    assert (rows_for(lives, 0, 1) != before).any()
    assert batches_of_ps(ring) == lives.replica.core.step == COHORT


def test_what_a_restored_ps_lacks_is_repeated_and_the_ring_ignores_it(ring: Ring) -> None:
    worker = ring.workers["worker-0"]
    snapshot(ring.job, 1, number=1)
    for task in range(COHORT):
        worker.servers.push(push_of(task, 0))
    rows_for(worker, 0, 1)
    die(ring.tables.pop())
    ring.tables.append(ring.job.start(1))
    assert batches_of_ps(ring) == 0
    outcome = worker.servers.push(push_of(0, 1))
    assert outcome.next_batch == 0, "the ring must not commit what a ps lacks"
    assert worker.servers.next_batch(TaskId(0), 4).next_batch == 0
    for task in range(COHORT):
        assert worker.servers.push(push_of(task, 0)).next_batch == 1
    rows_for(worker, 0, 1)
    assert batches_of_ps(ring) == worker.replica.core.step == COHORT
