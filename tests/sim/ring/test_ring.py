"""Deaths, frozen members and broken connections at every point of small rings, and mutations of the core's rules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.sim.ring.mutations import MUTATIONS
from tests.sim.ring.run import (
    Fault,
    Injection,
    Outcome,
    march,
    problem_of,
    random_faults,
    random_faults_of_both,
    simulate,
)

ROUNDS = 2
SEEDS = {
    "a later lineage beats a higher step": 260,
    "a state is the same one after a generation has opened with it": 303,
    "what is computed and not committed survives a break": 6,
    "batches are offered again in a new generation": 6,
    "offers of a former generation are void": 9,
    "a reduction counts only in its generation": 1134,
    "what comes from a former generation is void": 117,
    "a member that is left out asks again": 212,
    "the loss of a member interrupts a round": 747,
    "a break is reported": 63,
    "a member that lacks a committed round gets its result": 5,
    "all states are compared before a generation opens": 11,
    "only the leader of a complete round lets it begin": 0,
    "a round that begins elsewhere waits until this member has finished the one before": 99,
    "a joiner whose leader is lost connects again": 1213,
    "a result follows the state that it was committed to": 11,
    "checksums count only in their generation": 618,
    "a member that catches up compares nothing": 111,
    "all weights are compared at the end, also if the last round was committed in a former generation": 1,
}
"""Rule -> a seed whose random schedule shows that the rule is needed."""
SPOILT = {
    "a member whose weights differ copies those of the others": (Injection(step=40, fault=Fault.SPOIL, member=1),),
}
"""Rule -> faults, with seed 1, that show that the rule is needed."""
FROZEN = {
    "a batch counts only for the state that it was computed from": (
        Injection(step=57, fault=Fault.FREEZE, member=2),
        Injection(step=62, fault=Fault.CONTINUE, member=2),
    ),
}
"""The same, in rings that compare nothing."""
JOIN_ROUNDS = 8
"""Rounds in schedules with a joiner: it has time to copy the state before they end."""
TABLES = {
    "a ps makes its update when the ring has committed the round",
    "a pull for a batch that a ps has says nothing about the ring",
}
"""Rules without which a batch is computed again with other rows than it had, after deaths at most points."""
WAITS = {
    "results are kept for a joiner",
    "a joiner asks to be a member only when it is near",
    "the loss of a joiner breaks no generation",
    "results are kept from the oldest copy on that a joiner may get",
    "all members keep the results that joiners need",
    "results are kept for a joiner that changes to the generation that it is in",
}
"""Rules without which replicas are still equal, but the members wait for a joiner."""


def check(seed: int, members: int, faults: Sequence[Injection], *, has_tables: bool = False) -> Outcome:
    """Run a schedule, which must end well."""
    outcome = simulate(seed, members=members, rounds=ROUNDS, faults=faults, has_tables=has_tables)
    assert not outcome.problem, "\n".join([*outcome.trace, *map(str, faults), f"seed {seed}: {outcome.problem}"])
    return outcome


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_random_schedules_end_well(members: int) -> None:
    for seed in range(100):
        check(seed, members, random_faults(seed, members))


@pytest.mark.parametrize("members", [1, 2, 3])
def test_random_schedules_with_tables_on_a_ps_end_well(members: int) -> None:
    """Both ledgers have every batch once, also if the ps falls back to a snapshot."""
    for seed in range(100):
        check(seed, members, random_faults_of_both(seed, members), has_tables=True)


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.FREEZE, Fault.CUT, Fault.RESTORE])
def test_one_fault_at_every_point_with_tables_on_a_ps(fault: Fault) -> None:
    """Batches are computed again with the rows that they had, except after a death in the one moment of ADR 46."""
    seed, newer, found = 10, 0, 0
    for step in range(check(seed, 2, [], has_tables=True).steps):
        for victim in range(1 if fault is Fault.RESTORE else 2):
            outcome = check(seed, 2, [Injection(step=step, fault=fault, member=victim)], has_tables=True)
            newer, found = newer + (outcome.newer_rows > 0), found + 1
    if fault is Fault.KILL:
        assert 0 < newer < found // 20
    if fault in (Fault.CUT, Fault.RESTORE):
        assert newer == 0


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.FREEZE, Fault.CUT, Fault.LEAVE])
@pytest.mark.parametrize("members", [2, 3])
def test_one_fault_at_every_point(members: int, fault: Fault) -> None:
    for step in range(check(1, members, []).steps):
        for victim in range(members):
            check(1, members, [Injection(step=step, fault=fault, member=victim)])


@pytest.mark.parametrize(
    ("rounds", "changes"),
    [(20, 1), pytest.param(1000, 10, marks=[pytest.mark.thorough, pytest.mark.timeout(1800)], id="1,000 steps")],
)
def test_64_members_stay_equal_while_some_die_and_others_join(rounds: int, changes: int) -> None:
    world = march(members=64, rounds=rounds, changes=changes)
    assert not problem_of(world)
    assert len(world.generations) > changes
    assert world.copies >= changes
    assert "state" not in world.pauses


def second_faults(members: int, *, stride: int) -> int:
    """A death at every ``stride``-th point, and another one at points after it; returns how many schedules."""
    found = 0
    for first in range(0, check(2, members, []).steps, stride):
        for victim in range(members):
            deaths = [Injection(step=first, fault=Fault.KILL, member=victim)]
            last = check(2, members, deaths).steps
            for second in range(first, last, stride):
                for other in range(members):
                    if other != victim:
                        check(2, members, [*deaths, Injection(step=second, fault=Fault.KILL, member=other)])
                        found += 1
    return found


def test_second_deaths() -> None:
    assert second_faults(3, stride=8) > 100


def join(step: int) -> Injection:
    return Injection(step=step, fault=Fault.JOIN)


def problem_of_joins(seeds: Sequence[int] = (1, 2, 14), *, stride: int = 24) -> str:
    """What members of a ring of two wait for while a third one joins at some point; empty: at most for two results."""
    for seed in seeds:
        steps = simulate(seed, members=2, rounds=JOIN_ROUNDS, faults=[]).steps
        for step in range(0, steps, stride):
            joins = simulate(seed, members=2, rounds=JOIN_ROUNDS, faults=[join(step)])
            if joins.problem or joins.copies != 1 or len(joins.pauses) > 2 or "state" in joins.pauses:
                return f"seed {seed}, step {step}: {joins.problem} {joins.pauses}, {joins.copies} copies"
            dies = [join(step), Injection(step=step + 25, fault=Fault.KILL, member=2)]
            deaths = simulate(seed, members=2, rounds=JOIN_ROUNDS, faults=dies)
            if deaths.problem or (deaths.generations == 2 and not deaths.has_joined):
                return f"seed {seed}, step {step}: {deaths.problem} {deaths.generations} generations, and it dies"
            for later in range(20, 65, 15):
                dies = [join(step), Injection(step=step + later, fault=Fault.KILL, member=0)]
                deaths = simulate(seed, members=3, rounds=JOIN_ROUNDS, faults=dies)
                if deaths.problem or deaths.repeated:
                    return f"seed {seed}, step {step}: {deaths.problem} the leader dies, {deaths.repeated} copies again"
    changes = simulate(13, members=2, rounds=JOIN_ROUNDS, faults=[join(144)])
    if changes.problem or "state" in changes.pauses:
        return f"{changes.problem} {changes.pauses}, and it changes to the next generation"
    two = simulate(15, members=2, rounds=JOIN_ROUNDS, faults=[join(30), join(40)])
    return f"{two.problem} {two.pauses}, and another one joins" if two.problem or two.pauses else ""


def test_the_others_wait_for_no_copy_when_a_member_joins() -> None:
    assert not problem_of_joins()


@pytest.mark.parametrize(
    "stride",
    [pytest.param(12, id="some points"), pytest.param(1, id="every point", marks=pytest.mark.thorough)],
)
@pytest.mark.parametrize("fault", [Fault.KILL, Fault.FREEZE, Fault.CUT, Fault.JOIN])
def test_one_fault_while_a_joiner_copies(fault: Fault, stride: int) -> None:
    """The donor, another member or the joiner dies, or a second joiner comes, from the start of the joiner on."""
    for seed in (2, 3):
        last = simulate(seed, members=2, rounds=4, faults=[join(30)]).steps
        for step in range(30, last, stride):
            for victim in range(1 if fault is Fault.JOIN else 3):
                faults = [join(30), Injection(step=step, fault=fault, member=victim)]
                outcome = simulate(seed, members=2, rounds=4, faults=faults)
                assert not outcome.problem, "\n".join([*outcome.trace, *map(str, faults), f"{seed}: {outcome.problem}"])


@pytest.mark.parametrize("members", [2, 3])
def test_a_replica_with_an_error_copies_the_others(members: int) -> None:
    last = simulate(1, members=members, rounds=3, faults=[]).steps
    for step in range(0, last, 4):
        for victim in range(members):
            spoilt = Injection(step=step, fault=Fault.SPOIL, member=victim)
            outcome = simulate(1, members=members, rounds=3, faults=[spoilt])
            assert not outcome.problem, "\n".join([*outcome.trace, f"{spoilt}: {outcome.problem}"])


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
        if rule in SPOILT:
            return simulate(1, members=3, rounds=4, faults=SPOILT[rule]).problem
        if rule in FROZEN:
            return simulate(1, members=3, rounds=4, faults=FROZEN[rule], compares=False).problem
        if rule in WAITS:
            return problem_of_joins()
        if rule in TABLES:
            deaths = [[Injection(step=step, fault=Fault.KILL, member=0)] for step in range(60)]
            outcomes = [simulate(1, members=2, rounds=2, faults=one, has_tables=True) for one in deaths]
            return next((one.problem for one in outcomes if one.problem), "")
        seed = SEEDS[rule]
        return simulate(seed, members=1 + seed % 4, rounds=3, faults=random_faults(seed, 1 + seed % 4)).problem

    with MUTATIONS[rule]():
        try:
            found = problem()
        except Exception as error:  # A core without a rule may do anything.
            found = repr(error)
    assert found
    assert not problem()
