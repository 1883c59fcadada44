"""Tables beside a ring: a ps prepares a round, and makes its update when the ring has committed it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.ps.cores import core_of, wire_push
from tests.unit.ps.example import PLAN

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.names import TaskId
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.messages import Floats

ROUNDS = Rounds(plan=PLAN, tasks_per_cohort=2)


@pytest.fixture
def core() -> PsCore:
    return core_of(policy=UpdatePolicy(rounds=ROUNDS, follows_ring=True))


def pull(core: PsCore, batch: tuple[int, int] | None) -> Floats:
    ids = np.arange(10, dtype=np.int64)
    tables = (messages.TableIds(table=0, width=4, ids=ids),)
    request = messages.Pull(plan=PLAN.fingerprint, placement_version=1, pin=0, dense=True, batch=batch, tables=tables)
    return core.pull(request).rows.copy()


def updates(core: PsCore) -> int:
    assert core.shard is not None
    return core.shard.iteration


def push_round(core: PsCore, batch: int) -> None:
    for task in (0, 1):
        core.push(wire_push(task, batch))


def test_a_complete_round_waits_for_a_pull_for_the_next_one(core: PsCore) -> None:
    before = pull(core, (0, 0))
    push_round(core, 0)
    assert updates(core) == 0
    np.testing.assert_array_equal(pull(core, (1, 0)), before, err_msg="the same batch gets the same rows")
    after = pull(core, (0, 1))
    assert updates(core) == 1
    assert (after != before).any()
    np.testing.assert_array_equal(pull(core, (1, 1)), after)


def test_an_incomplete_round_is_not_applied(core: PsCore) -> None:
    core.push(wire_push(0, 0))
    pull(core, (1, 0))
    pull(core, None)
    core.open_pin(1)
    assert updates(core) == 0


def test_a_push_for_the_next_round_shows_that_the_one_before_is_committed(core: PsCore) -> None:
    push_round(core, 0)
    core.push(wire_push(0, 1))
    assert updates(core) == 1
    core.push(wire_push(0, 0))
    core.push(wire_push(1, 1))
    assert updates(core) == 1


@pytest.mark.parametrize("reads", ["pull", "pin", "last snapshot"])
def test_readers_of_the_model_get_complete_rounds(core: PsCore, reads: str) -> None:
    tasks = range(PLAN.tasks) if reads == "last snapshot" else range(2)
    for start in range(0, len(tasks), 2):
        for batch in range(4):
            for task in tasks[start : start + 2]:
                if batch < PLAN.batches_of(TaskId(task)):
                    core.push(wire_push(task, batch))
    before = updates(core)
    match reads:
        case "pull":
            pull(core, None)
        case "pin":
            core.open_pin(1)
        case _:
            core.cut(dirty_only=False, flush=True).close(finished=True)
    assert updates(core) == before + 1


def test_the_updates_are_those_of_other_synchronous_jobs(core: PsCore) -> None:
    other = core_of(policy=UpdatePolicy(rounds=ROUNDS))
    for batch in range(4):
        push_round(core, batch)
        push_round(other, batch)
    np.testing.assert_array_equal(pull(core, (2, 0)), pull(other, (2, 0)))


def test_a_restored_ps_still_holds_a_prepared_round(core: PsCore) -> None:
    before = pull(core, (0, 0))
    push_round(core, 0)
    assert core.shard is not None
    cut = core.cut(dirty_only=False, flush=False)
    shard = ModelShard(core.shard.signature, core.policy)
    shard.install([shard.group_of(cut.groups[0])])
    cut.close(finished=True)
    restored = PsCore(plan=PLAN, placement=core.placement, number=0, policy=core.policy)
    restored.install(shard)
    restored.start_serving()
    np.testing.assert_array_equal(pull(restored, (1, 0)), before)
    np.testing.assert_array_equal(pull(restored, (0, 1)), pull(core, (0, 1)))
