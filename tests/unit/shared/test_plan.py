"""The plan names every record of every epoch exactly once, whatever the numbers."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.global_order import block_records
from elasticdl.shared.job.permutation import Permutation
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.names import TaskId


def make(records: list[int], **changes: object) -> Plan:
    sources = tuple(Source(uri=f"memory://{i}", size_bytes=n, etag="e", records=n) for i, n in enumerate(records))
    facts: dict[str, object] = {
        "sources": sources,
        "minibatch_size": 3,
        "minibatches_per_task": 2,
        "epochs": 1,
        "shuffle": Shuffle.RECORDS,
        "seed": 1,
    }
    return Plan(**(facts | changes))  # type: ignore[arg-type]


def batches_of(plan: Plan) -> list[tuple[TaskId, int, list[tuple[int, int]]]]:
    """Every batch of the plan with its (source, record) pairs."""
    found = []
    for task in plan.task_ids():
        places = [(shard.source, record) for shard in plan.shards(task) for record in range(shard.start, shard.end)]
        order = list(plan.record_order(task))
        for batch in range(plan.batches_of(task)):
            first = batch * plan.minibatch_size
            offsets = order[first : first + plan.minibatch_size]
            assert len(offsets) == plan.records_of(task, batch)
            found.append((task, batch, [places[offset] for offset in offsets]))
    return found


plans = st.builds(
    make,
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    minibatch_size=st.integers(1, 7),
    minibatches_per_task=st.integers(1, 5),
    epochs=st.integers(1, 4),
    shuffle=st.sampled_from(Shuffle),
    seed=st.integers(0, 2**64 - 1),
)


@given(plans)
def test_every_record_of_every_epoch_exactly_once(plan: Plan) -> None:
    counts = Counter((plan.epoch(task), record) for task, _, records in batches_of(plan) for record in records)
    expected = {
        (epoch, (source, record))
        for epoch in range(plan.epochs)
        for source, facts in enumerate(plan.sources)
        for record in range(facts.records)
    }
    assert set(counts) == expected
    assert set(counts.values()) <= {1}
    assert plan.records == len(expected)
    assert plan.batches == len(batches_of(plan))


@given(plans, st.integers(1, 60))
def test_max_step_keeps_the_first_batches(plan: Plan, max_step: int) -> None:
    short = make(
        [source.records for source in plan.sources],
        minibatch_size=plan.minibatch_size,
        minibatches_per_task=plan.minibatches_per_task,
        epochs=plan.epochs,
        shuffle=plan.shuffle,
        seed=plan.seed,
        max_step=max_step,
    )
    assert len(batches_of(short)) == min(max_step, plan.batches) == short.batches
    assert short.records == sum(len(records) for _, _, records in batches_of(short))
    whole_tasks = list(short.task_ids())[:-1]
    assert all(short.shards(task) == plan.shards(task) for task in whole_tasks)


def test_epochs_are_shuffled_differently_and_the_same_every_time() -> None:
    plan = make([400], epochs=2)
    first, second = (
        [plan.shards(TaskId(e * plan.tasks_per_epoch + i)) for i in range(plan.tasks_per_epoch)] for e in (0, 1)
    )
    assert first != second
    assert first == [make([400], epochs=2).shards(TaskId(i)) for i in range(plan.tasks_per_epoch)]


def test_the_fingerprint_knows_everything_that_names_a_record() -> None:
    base = make([10, 20])
    others = [
        make([10, 21]),
        make([10, 20], seed=2),
        make([10, 20], shuffle=Shuffle.NONE),
        make([10, 20], shuffle=Shuffle.GLOBAL),
        make([10, 20], minibatch_size=4),
        make([10, 20], minibatches_per_task=3),
        make([10, 20], epochs=2),
        make([10, 20], max_step=5),
    ]
    assert len({plan.fingerprint for plan in [base, *others]}) == 1 + len(others)
    assert base.fingerprint == make([10, 20]).fingerprint


@pytest.mark.parametrize("sources", [0, 1, 999, 1000, 1001, 2500])
def test_the_fingerprint_is_that_of_the_whole_plan_as_json(sources: int) -> None:
    """It is computed in pieces: the text of a million sources takes memory."""
    plan = make([3] * sources, max_step=7)
    facts = asdict(plan) | {"shuffle": plan.shuffle.value}
    assert plan.fingerprint == hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def test_the_records_of_a_batch_never_change_between_versions() -> None:
    """A running job must survive an upgrade of this package: these numbers are forever."""
    plan = make([100], seed=42)
    assert [record for _, _, records in batches_of(plan)[:3] for _, record in records] == GOLDEN


def test_a_global_shuffle_never_changes_between_versions() -> None:
    plan = make([60, 0, 40], seed=42, shuffle=Shuffle.GLOBAL)
    assert [record for _, _, records in batches_of(plan)[:3] for record in records] == GLOBAL_GOLDEN


@given(plans.map(lambda plan: replace(plan, shuffle=Shuffle.GLOBAL)))
def test_the_tasks_of_a_global_shuffle_are_full_and_few_ranges(plan: Plan) -> None:
    for task in plan.task_ids():
        is_last = (task + 1) % plan.tasks_per_epoch == 0
        assert plan.task_size(task) == plan.task_records or is_last
        shards = plan.shards(task)
        assert [*shards] == sorted(shards, key=lambda shard: (shard.source, shard.start))
        assert sum(shard.records for shard in shards) == plan.task_size(task)
        blocks = -(-plan.task_size(task) // block_records(plan.task_records))
        # A block may be cut by the task's ends, the end of the data, and the borders of files.
        assert len(shards) <= (blocks + 2) * (len(plan.sources) + 1)


def test_a_batch_of_a_global_shuffle_has_records_from_everywhere() -> None:
    plan = make([1000] * 10, minibatch_size=32, minibatches_per_task=16, epochs=2, shuffle=Shuffle.GLOBAL)
    sources = [len({source for source, _ in records}) for _, _, records in batches_of(plan)]
    assert sum(sources) / len(sources) > 7
    first, second = ([plan.shards(TaskId(epoch * plan.tasks_per_epoch + i)) for i in range(5)] for epoch in (0, 1))
    assert first != second


GLOBAL_GOLDEN = [(0, 36), (0, 9), (0, 41), (2, 33), (2, 11), (0, 35), (0, 43), (2, 5), (2, 28)]
GOLDEN = [80, 78, 81, 83, 82, 79, 57, 58, 59]


@pytest.mark.parametrize(
    "change", [{"minibatch_size": 0}, {"epochs": 0}, {"max_step": -1}, {"minibatches_per_task": 0}]
)
def test_numbers_out_of_range_are_refused_by_flag(change: dict[str, int]) -> None:
    with pytest.raises(UserError, match="--"):
        make([10], **change)


@given(st.integers(1, 300), st.integers(0, 2**64 - 1))
def test_a_permutation_is_a_bijection(size: int, key: int) -> None:
    assert sorted(Permutation(size, key)) == list(range(size))


@pytest.mark.parametrize("shuffle", [Shuffle.RECORDS, Shuffle.GLOBAL])
def test_tasks_of_later_epochs_are_those_of_a_plan_with_more_epochs(shuffle: Shuffle) -> None:
    short = make([25, 7], minibatch_size=3, minibatches_per_task=2, shuffle=shuffle)
    longer = replace(short, epochs=3)
    for task in longer.task_ids():
        assert short.shards(task) == longer.shards(task)
        assert list(short.record_order(task)) == list(longer.record_order(task))


def test_a_plan_that_max_step_ends_has_no_later_tasks() -> None:
    plan = make([25], minibatch_size=3, minibatches_per_task=2, epochs=2, max_step=11)
    assert not plan.defines(plan.tasks)
    with pytest.raises(IndexError, match="is not in the plan"):
        plan.shards(TaskId(plan.tasks))
