"""Fleets under random faults in the normal test run, and that planted bugs are still found.

``python -m tests.fleet`` runs 10,000 seeds.
"""

from __future__ import annotations

import os

import pytest
from tests.fleet.mutations import MUTATIONS, SEEDS
from tests.fleet.run import run_seed, tell

COUNT = int(os.environ.get("ELASTICDL_FLEET_SEEDS", "30"))
BLOCK = 10


@pytest.mark.parametrize("first", range(0, COUNT, BLOCK))
def test_fleets_keep_their_rules_under_faults(first: int) -> None:
    for seed in range(first, min(first + BLOCK, COUNT)):
        outcome = run_seed(seed)
        assert not outcome.problems, f"python -m tests.fleet --seed {seed}\n{tell(seed, outcome)}"


BROKEN_ONCE = {
    4100350: "Jobs took a worker and its ps from each other in turns.",
    4101044: "The same.",
    4200297: "A ps stood where only the workers of its job could.",
    4300702: "A queue returned a whole job for what its workers above the minimum had borrowed, and the job came back.",
    4400567: "A job borrowed for a worker and its ps what it could not keep.",
    4400845: "A gang borrowed what the other queue claimed.",
    4403153: "A gang started again and again, and had to leave at once for what the other queue claimed.",
    4401574: "A gang could not have the room of the ps of a job that left for it.",
}


@pytest.mark.parametrize("seed", BROKEN_ONCE)
def test_fleets_that_broke_a_rule_once_keep_them(seed: int) -> None:
    assert not run_seed(seed).problems, BROKEN_ONCE[seed]


def test_a_plan_that_is_kept_decides_as_a_new_one() -> None:
    for seed in range(COUNT, COUNT + 20):
        assert not run_seed(seed, compares=True).problems, f"seed {seed}"


def test_every_mutation_has_a_seed() -> None:
    assert set(SEEDS) == set(MUTATIONS)


@pytest.mark.parametrize("name", SEEDS)
def test_a_planted_bug_is_found(name: str) -> None:
    rule, patch = MUTATIONS[name]
    with patch():
        assert run_seed(SEEDS[name]).problems, f"nothing shows that this is not true: {rule}"
