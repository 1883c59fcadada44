"""A job with snapshots in memory, for tests of what can be recovered from snapshots alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.ps.example import BATCHES, initial_dense, push_of, signature, spec
from tests.unit.ps.jobs import Job, snapshot

from elasticdl.shared.storage import MemoryStore

STORAGE = "memory://job"


@pytest.fixture
def job() -> Iterator[Job]:
    """Two ps with snapshots after 0, 1 and 2 batches each, ps-1 with one more."""
    job = Job(spec(STORAGE, ps=2), MemoryStore())
    for number in range(2):
        job.start(number)
    client = job.client(signature("adam"))
    client.initialise(initial_dense())
    for request, (task, batch) in enumerate(BATCHES[:2], start=1):
        client.push(push_of(task, batch))
        for number in range(2):
            snapshot(job, request, number=number)
    client.push(push_of(*BATCHES[2]))
    snapshot(job, 9, number=1)
    yield job
    job.close()
