"""Rounds: which batches make one update, and when a round is open or complete."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.names import TaskId

PLAN = Plan(
    sources=(Source(uri="memory://data", size_bytes=26, etag="1", records=26),),
    minibatch_size=2,
    minibatches_per_task=3,
    epochs=2,
    shuffle=Shuffle.NONE,
    seed=1,
)
"""Five tasks per epoch; the last one has one batch."""


def absorb(ledger: Ledger, task: int, batch: int) -> None:
    batches = PLAN.batches_of(TaskId(task))
    ledger.absorb(TaskId(task), batch, batches, PLAN.records_of(TaskId(task), batch), 1)


@pytest.mark.parametrize(
    ("task", "cohort"), [(0, range(2)), (1, range(2)), (4, range(4, 5)), (5, range(5, 7)), (9, range(9, 10))]
)
def test_cohorts_do_not_cross_epochs(task: int, cohort: range) -> None:
    assert Rounds(plan=PLAN, tasks_per_cohort=2).cohort(TaskId(task)) == cohort


def test_a_round_is_open_once_the_round_before_is_complete() -> None:
    rounds, ledger = Rounds(plan=PLAN, tasks_per_cohort=2), Ledger()
    assert rounds.is_open(ledger, TaskId(0), 0)
    assert not rounds.is_open(ledger, TaskId(0), 1)
    absorb(ledger, 0, 0)
    assert not rounds.is_complete(ledger, TaskId(0), 0)
    assert not rounds.is_open(ledger, TaskId(0), 1)
    absorb(ledger, 1, 0)
    assert rounds.is_complete(ledger, TaskId(0), 0)
    assert rounds.is_open(ledger, TaskId(0), 1)
    assert rounds.is_open(ledger, TaskId(1), 1)
    assert not rounds.is_open(ledger, TaskId(2), 0)


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 6), data=st.data())
def test_any_open_order_makes_each_round_once(size: int, data: st.DataObject) -> None:
    """Whatever open batch comes next, rounds are completed in order, and every batch is in one of them."""
    rounds, ledger = Rounds(plan=PLAN, tasks_per_cohort=size), Ledger()
    done: dict[int, int] = dict.fromkeys(PLAN.task_ids(), 0)
    completed = []
    while any(done[task] < PLAN.batches_of(TaskId(task)) for task in done):
        ready = [
            task
            for task, batch in done.items()
            if batch < PLAN.batches_of(TaskId(task)) and rounds.is_open(ledger, TaskId(task), batch)
        ]
        task = data.draw(st.sampled_from(ready))
        absorb(ledger, task, done[task])
        if rounds.is_complete(ledger, TaskId(task), done[task]):
            completed.append(rounds.key(TaskId(task), done[task])[:2])
        done[task] += 1
    assert completed == sorted(set(completed))
    assert completed == sorted({rounds.key(task, batch)[:2] for task in PLAN.task_ids() for batch in range(done[task])})


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 3), data=st.data())
def test_what_is_long_before_a_dispatched_task_is_complete(size: int, data: st.DataObject) -> None:
    """The master dispatches the first incomplete tasks of the plan, as many as the window has."""
    plan, ledger = replace(PLAN, epochs=5), Ledger()
    rounds = Rounds(plan=plan, tasks_per_cohort=size)
    while left := [task for start, end in ledger.missing(plan.tasks) for task in range(start, end)]:
        for task in left[: rounds.window]:
            earlier = rounds.long_before(TaskId(task))
            assert earlier is None or earlier not in left
        following = {task: ledger.next_batch(TaskId(task), plan.batches_of(TaskId(task))) for task in left}
        task = data.draw(st.sampled_from([one for one in left if rounds.is_open(ledger, TaskId(one), following[one])]))
        ledger.absorb(TaskId(task), following[task], plan.batches_of(TaskId(task)), 2, 1)
