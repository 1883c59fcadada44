"""Deaths, frozen members and broken connections at every point of small rings, and mutations of the core's rules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.sim.ring.mutations import MUTATIONS
from tests.sim.ring.run import Fault, Injection, random_faults, simulate

ROUNDS = 2
SEEDS = {
    "a later lineage beats a higher step": 212,
    "a state is the same one after a generation has opened with it": 242,
    "what is computed and not committed survives a break": 6,
    "batches are offered again in a new generation": 6,
    "offers of a former generation are void": 9,
    "a reduction counts only in its generation": 1187,
    "what comes from a former generation is void": 117,
    "a member that is left out asks again": 212,
    "the loss of a member interrupts a round": 747,
    "a break is reported": 83,
    "a member that lacks a committed round gets its result": 5,
    "all states are compared before a generation opens": 1,
    "only the leader of a complete round lets it begin": 0,
    "a round that begins elsewhere waits until this member has finished the one before": 99,
}
"""Rule -> a seed whose random schedule shows that the rule is needed."""
FROZEN = {
    "a batch counts only for the state that it was computed from": (
        Injection(step=57, fault=Fault.FREEZE, member=2),
        Injection(step=89, fault=Fault.CONTINUE, member=2),
    )
}
"""Rule -> faults, with seed 1, that show that the rule is needed."""


def check(seed: int, members: int, faults: Sequence[Injection]) -> int:
    """Run a schedule, which must end well; returns the number of its steps."""
    outcome = simulate(seed, members=members, rounds=ROUNDS, faults=faults)
    assert not outcome.problem, "\n".join([*outcome.trace, *map(str, faults), f"seed {seed}: {outcome.problem}"])
    return outcome.steps


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_random_schedules_end_well(members: int) -> None:
    for seed in range(100):
        check(seed, members, random_faults(seed, members))


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.FREEZE, Fault.CUT, Fault.LEAVE])
@pytest.mark.parametrize("members", [2, 3])
def test_one_fault_at_every_point(members: int, fault: Fault) -> None:
    for step in range(check(1, members, [])):
        for victim in range(members):
            check(1, members, [Injection(step=step, fault=fault, member=victim)])


def second_faults(members: int, *, stride: int) -> int:
    """A death at every ``stride``-th point, and another one at points after it; returns how many schedules."""
    found = 0
    for first in range(0, check(2, members, []), stride):
        for victim in range(members):
            deaths = [Injection(step=first, fault=Fault.KILL, member=victim)]
            last = check(2, members, deaths)
            for second in range(first, last, stride):
                for other in range(members):
                    if other != victim:
                        check(2, members, [*deaths, Injection(step=second, fault=Fault.KILL, member=other)])
                        found += 1
    return found


def test_second_deaths() -> None:
    assert second_faults(3, stride=8) > 100


@pytest.mark.thorough
@pytest.mark.parametrize("members", [2, 3, 4])
def test_second_deaths_at_every_point(members: int) -> None:
    assert second_faults(members, stride=4 if members == 4 else 1) > 1000


@pytest.mark.thorough
def test_many_random_schedules_end_well() -> None:
    for seed in range(10_000):
        check(seed, 1 + seed % 4, random_faults(seed, 1 + seed % 4))


@pytest.mark.parametrize("rule", MUTATIONS)
def test_a_rule_that_is_removed_is_missed(rule: str) -> None:
    def problem() -> str:
        if rule in FROZEN:
            return simulate(1, members=3, rounds=4, faults=FROZEN[rule]).problem
        seed = SEEDS[rule]
        return simulate(seed, members=1 + seed % 4, rounds=3, faults=random_faults(seed, 1 + seed % 4)).problem

    with MUTATIONS[rule]():
        try:
            found = problem()
        except Exception as error:  # A core without a rule may do anything.
            found = repr(error)
    assert found
    assert not problem()
