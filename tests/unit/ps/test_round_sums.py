"""Sums over the batches of a round: whole, of one round only, and the same in any order of arrival."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ps.example import PLAN

from elasticdl.ps.shard.round_sums import ROUNDS_KEPT, RoundSums
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.names import TaskId
from elasticdl.shared.wire.messages import NO_DOUBLES, Exchange

ROUNDS = Rounds(plan=PLAN, tasks_per_cohort=3)
"""Tasks 0 to 2 are trained together, then 3 alone."""
MEMBERS = (0, 1, 2)


def contribution(
    task: int,
    *,
    batch: int = 0,
    weights: str = "ps-0:1",
    position: int = 0,
    backward: bool = False,
    absent: bool = False,
    size: int = 3,
) -> Exchange:
    """What is added depends on everything that a sum must keep apart."""
    seed = abs(hash((task, batch, weights, position, backward)))
    values = NO_DOUBLES if absent else np.random.default_rng(seed).normal(size=size) * 10.0**task
    return Exchange(
        plan=PLAN.fingerprint,
        placement_version=1,
        task=task,
        batch=batch,
        weights=weights,
        position=position,
        backward=backward,
        absent=absent,
        values=values,
    )


places = st.fixed_dictionaries(
    {
        "batch": st.integers(0, 1),
        "weights": st.sampled_from(["ps-0:1", "ps-0:2"]),
        "position": st.integers(0, 2),
        "backward": st.booleans(),
    }
)


@given(sent=st.lists(st.tuples(st.sampled_from(MEMBERS), places), max_size=60))
def test_a_sum_is_complete_or_names_what_is_missing(sent: list[tuple[int, dict[str, Any]]]) -> None:
    sums = RoundSums(ROUNDS)
    present: dict[object, set[int]] = {}
    for task, place in sent:
        request = contribution(task, **place)
        sums.add(request)
        reply = sums.reply(request)
        here = present.setdefault(tuple(sorted(place.items())), set())
        here.add(task)
        assert set(reply.missing) == set(MEMBERS) - here
        if not reply.missing:
            parts = [contribution(one, **place).values for one in MEMBERS]
            expected = (parts[0] + parts[1]) + parts[2]
            np.testing.assert_array_equal(reply.values, expected)


@given(order=st.permutations(MEMBERS))
def test_the_order_of_arrival_does_not_change_the_bits(order: list[int]) -> None:
    first, other = RoundSums(ROUNDS), RoundSums(ROUNDS)
    for task in MEMBERS:
        first.add(contribution(task))
    for task in order:
        other.add(contribution(task))
    assert first.reply(contribution(0)).values.tobytes() == other.reply(contribution(0)).values.tobytes()


def test_the_first_contribution_of_a_batch_wins() -> None:
    sums = RoundSums(ROUNDS)
    for task in (0, 0, 1, 2):
        sums.add(contribution(task))
    whole = sums.reply(contribution(0)).values.copy()
    sums.add(replace(contribution(1), values=np.full(3, 1e9)))
    np.testing.assert_array_equal(sums.reply(contribution(1)).values, whole)


def test_a_batch_without_records_adds_nothing() -> None:
    sums = RoundSums(ROUNDS)
    sums.add(contribution(0))
    assert sums.reply(contribution(0)).missing == (1, 2)
    sums.add(contribution(1, absent=True))
    assert sums.reply(contribution(1, absent=True)).missing == ()
    sums.add(contribution(2))
    np.testing.assert_array_equal(sums.reply(contribution(0)).values, contribution(0).values + contribution(2).values)
    sums.add(contribution(0, position=1))
    assert sums.reply(contribution(0, position=1)).missing == (2,)
    sums.add(contribution(2, absent=True, position=5))
    np.testing.assert_array_equal(sums.reply(contribution(0, position=1)).values, contribution(0, position=1).values)


def test_a_batch_that_is_alone_is_its_own_sum() -> None:
    sums = RoundSums(ROUNDS)
    sums.add(contribution(3))
    np.testing.assert_array_equal(sums.reply(contribution(3)).values, contribution(3).values)


def test_another_shape_is_refused() -> None:
    sums = RoundSums(ROUNDS)
    sums.add(contribution(0))
    with pytest.raises(ProtocolError, match="task 1, batch 0: its values have another shape"):
        sums.add(contribution(1, size=4))


def test_a_round_that_was_forgotten_has_another_generation() -> None:
    sums = RoundSums(ROUNDS)
    sums.add(contribution(0))
    before = sums.reply(contribution(0)).generation
    sums.add(contribution(1))
    assert sums.reply(contribution(0)).generation == before
    for other in range(ROUNDS_KEPT):
        sums.add(contribution(0, weights=f"ps-0:{other + 5}"))
    sums.add(contribution(2))
    reply = sums.reply(contribution(2))
    assert reply.generation != before
    assert reply.missing == (0, 1)


def test_the_members_of_a_round_are_the_tasks_that_have_its_batch() -> None:
    assert ROUNDS.members(TaskId(1), 3) == (0, 1, 2)
    assert ROUNDS.members(TaskId(3), 0) == (3,)
    wide = Rounds(plan=PLAN, tasks_per_cohort=4)
    assert wide.members(TaskId(3), 0) == (0, 1, 2, 3)
    assert wide.members(TaskId(2), 1) == (0, 1, 2)
