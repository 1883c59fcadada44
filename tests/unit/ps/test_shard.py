"""A shard of several groups, and the memory that it needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.ps.cores import core_of, initialise, wire_push
from tests.unit.ps.example import BATCHES, PLAN, ROWS_A, ROWS_B, initial_dense, signature

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.model.placement import ALL, Placement
from elasticdl.shared.wire.messages import NO_FLOATS, PushVerdict


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("grads_to_wait", [1, 2])
def test_groups_that_disagreed_about_an_overflow_merge(optimizer: str, grads_to_wait: int) -> None:
    shard = ModelShard(signature(optimizer), UpdatePolicy(grads_to_wait=grads_to_wait))
    shard.install([shard.create(((0, 100),)), shard.create(((100, 256),))])
    for group in shard.groups:
        group.dense.set(group.part.gather(initial_dense()))
    before = shard.part.size
    for batch in range(3):
        for division in shard.divide(wire_push(0, batch)):
            part = division.push
            if batch == 1 and division.group is shard.groups[0]:  # It overflowed when it was computed for this group.
                part = replace(part, empty=True, dense=NO_FLOATS, statistics=NO_FLOATS, tables=())
            division.group.apply(part)
    assert len({group.iteration for group in shard.groups}) == 2 or grads_to_wait == 2
    shard.merge()
    (merged,) = shard.groups
    assert merged.iteration == (3 if grads_to_wait == 1 else 2)
    assert not merged.accumulator.weight
    assert (merged.partitions, shard.part.size) == (ALL, before)
    (division,) = shard.divide(wire_push(0, 3))
    division.group.apply(division.push)
    assert merged.ledger.step == 4


def test_memory_that_an_open_cut_needs_does_not_count_against_the_limit() -> None:
    core = core_of("adam")
    for batch in range(4):
        core.push(wire_push(0, batch))
    assert core.shard is not None
    limited = PsCore(
        plan=PLAN, placement=Placement.even(1), number=0, policy=UpdatePolicy(), memory_bytes_max=core.shard.nbytes
    )
    limited.initialise(initialise("adam"))
    limited.start_serving()
    for batch in range(3):
        limited.push(wire_push(0, batch))
    cut = limited.cut(dirty_only=False, flush=False)
    assert limited.push(wire_push(0, 3)).verdict is PushVerdict.APPLIED
    assert limited.push(wire_push(1, 0)).verdict is PushVerdict.APPLIED
    cut.close()


def test_two_runs_of_three_workers_end_in_the_same_bits() -> None:
    policy = UpdatePolicy(rounds=Rounds(plan=PLAN, tasks_per_cohort=3))
    ends = []
    for seed in (1, 2):
        core, random = core_of("adam", policy=policy), np.random.default_rng(seed)
        waiting = list(BATCHES)
        while waiting:  # Three workers push at random; what is of a later round comes again.
            for place in random.permutation(min(3 * 4, len(waiting)))[::-1]:
                if core.push(wire_push(*waiting[place])).verdict is PushVerdict.APPLIED:
                    del waiting[place]
                    break
        shard = core.shard
        assert shard is not None
        cut = shard.cut()
        rows = [np.empty((count, width), np.float32) for count, width in ((ROWS_A, 4), (ROWS_B, 2))]
        for part, out in zip(cut.rows, rows, strict=True):
            part.pull(np.arange(len(out)), out)
        ends.append([cut.groups[0].dense.state.tobytes(), *(out.tobytes() for out in rows)])
    assert ends[0] == ends[1]
