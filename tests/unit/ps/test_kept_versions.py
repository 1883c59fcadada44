"""Whole versions of the model, put together from the snapshots of several ps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.unit.ps.example import ROWS_A, ROWS_B, initial_dense, signature
from tests.unit.ps.job_with_snapshots import job
from tests.unit.ps.jobs import Job, snapshot
from tests.unit.ps.servers import weights

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.kept_versions import KeptVersion, kept_versions, write_version
from elasticdl.ps.snapshots.reader import gather, gather_weights
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.whole_model import Floats, read_model

__all__ = ["job"]


def values(job: Job, version: KeptVersion, file: Path) -> tuple[Floats, Floats, Floats]:
    write_version(job.store, job.spec, version, file)
    dense, rows_of = read_model(file.read_bytes())
    return dense, rows_of("a", np.arange(ROWS_A)), rows_of("b", np.arange(ROWS_B))


def test_a_version_takes_from_each_ps_the_newest_snapshot_that_is_older_than_the_version_after_it(job: Job) -> None:
    registers = [job.register(number) for number in range(2)]
    assert [one.steps for one in kept_versions(job.store, job.spec, registers)] == [(2, 3), (1, 1), (0, 0)]


def test_a_version_has_the_weights_that_the_ps_serve_and_those_that_were_never_trained(
    job: Job, tmp_path: Path
) -> None:
    snapshot(job, 10, number=0)
    registers = [job.register(number) for number in range(2)]
    newest, *_, first = kept_versions(job.store, job.spec, registers)
    for mine, served in zip(
        values(job, newest, tmp_path / "newest"), weights(job.client(signature("adam"))), strict=True
    ):
        np.testing.assert_array_equal(mine, served)
    np.testing.assert_array_equal(values(job, first, tmp_path / "first")[0], initial_dense())


def test_without_registers_all_snapshots_in_the_storage_count(job: Job) -> None:
    assert [one.step for one in kept_versions(job.store, job.spec, [])] == [3, 1, 0]


def test_a_version_is_read_without_the_slots_of_the_optimizer(job: Job) -> None:
    newest, *_ = kept_versions(job.store, job.spec, [])
    core = PsCore(plan=job.spec.plan, placement=Placement.even(1), number=0, policy=UpdatePolicy.of(job.spec))
    trained, weights_only = gather(job.store, core, newest.parts), gather_weights(job.store, core.policy, newest.parts)
    assert trained.signature.optimizer.name == "adam"
    assert [table.slab_width for table in trained.tables] == [13, 7]
    assert [table.slab_width for table in weights_only.tables] == [4, 2]
    assert weights_only.rows == trained.rows > 0
