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


@pytest.mark.parametrize("seed", [4100350, 4101044, 4200297, 4300702])
def test_fleets_that_broke_a_rule_once_keep_them(seed: int) -> None:
    """Jobs took a worker and its ps from each other in turns; a ps stood where only the workers of its job could.

    A queue had to return a whole job for what its workers above the minimum had borrowed, and the job came back.
    """
    assert not run_seed(seed).problems


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
