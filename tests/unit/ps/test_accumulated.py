"""Gradients that wait for their update, in snapshots: as they were."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.unit.ps.example import BATCHES, initial_dense, push_of, signature, spec
from tests.unit.ps.jobs import Job, die, snapshot

from elasticdl.shared.storage import MemoryStore


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job(spec("memory://job", grads_to_wait=4), MemoryStore())
    yield job
    job.close()


def test_half_filled_accumulators_are_restored(job: Job) -> None:
    service = job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    for batch in BATCHES[:3]:
        client.push(push_of(*batch))
    assert service.core.shard is not None
    (before,) = service.core.shard.groups
    saved = before.accumulator.state()
    snapshot(job, 1)
    die(service)
    reborn = job.start()
    assert reborn.core.shard is not None
    restored = reborn.core.shard.groups[0].accumulator.state()
    assert restored.weight == saved.weight == 3
    np.testing.assert_array_equal(restored.sums.dense, saved.sums.dense)
    assert restored.sums.rows.keys() == saved.sums.rows.keys()
    for table, (ids, values) in saved.sums.rows.items():
        np.testing.assert_array_equal(restored.sums.rows[table][0], ids)
        np.testing.assert_array_equal(restored.sums.rows[table][1], values)
