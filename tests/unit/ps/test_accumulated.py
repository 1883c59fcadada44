"""Gradients that wait for their update, in snapshots: as they were, also in those of earlier versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.ps.example import BATCHES, initial_dense, push_of, signature, spec
from tests.unit.ps.jobs import Job, die, snapshot

from elasticdl.shared.model.manifests import (
    ChunkPart,
    checksum_of,
    chunk_uri,
    encode_manifest,
    read_chunk,
    read_manifest,
)
from elasticdl.shared.storage import MemoryStore

SUMS = (ChunkPart.ACCUMULATED_DENSE, ChunkPart.ACCUMULATED_ROWS)


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job(spec("memory://job", grads_to_wait=4), MemoryStore())
    yield job
    job.close()


def halve_precision(job: Job, uri: str) -> None:
    """Write the sums of a snapshot as earlier versions did, in float32."""
    manifest = read_manifest(job.store, uri)
    chunks = []
    for chunk in manifest.chunks:
        if chunk.part in SUMS:
            data = bytes(read_chunk(job.store, uri, chunk))
            ids, sums = data[: 8 * chunk.rows], np.frombuffer(data, np.float64, offset=8 * chunk.rows)
            data = ids + sums.astype(np.float32).tobytes()
            job.store.write(chunk_uri(uri, chunk.name), data)
            chunk = replace(chunk, size_bytes=len(data), checksum=checksum_of(data))
        chunks.append(chunk)
    job.store.write(uri, encode_manifest(replace(manifest, chunks=tuple(chunks))))


@pytest.mark.parametrize("is_of_earlier_version", [False, True])
def test_half_filled_accumulators_are_restored(job: Job, is_of_earlier_version: bool) -> None:
    service = job.start()
    client = job.client(signature())
    client.initialise(initial_dense())
    for batch in BATCHES[:3]:
        client.push(push_of(*batch))
    assert service.core.shard is not None
    (before,) = service.core.shard.groups
    saved = before.accumulator.state()
    uri = snapshot(job, 1).manifest
    die(service)
    if is_of_earlier_version:
        halve_precision(job, uri)
    reborn = job.start()
    assert reborn.core.shard is not None
    restored = reborn.core.shard.groups[0].accumulator.state()
    assert restored.weight == saved.weight == 3
    exact = {"rtol": 1e-6, "atol": 1e-6} if is_of_earlier_version else {"rtol": 0, "atol": 0}
    np.testing.assert_allclose(restored.sums.dense, saved.sums.dense, **exact)
    assert restored.sums.rows.keys() == saved.sums.rows.keys()
    for table, (ids, values) in saved.sums.rows.items():
        np.testing.assert_array_equal(restored.sums.rows[table][0], ids)
        np.testing.assert_allclose(restored.sums.rows[table][1], values, **exact)
