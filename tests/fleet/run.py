"""Runs seeds."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fleet import rules
from tests.fleet.schedule import END_S, random_fleet
from tests.fleet.world import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a seed ended."""

    problems: tuple[str, ...]
    story: tuple[str, ...]
    decisions: int


def run_seed(seed: int, *, compares: bool = False) -> Outcome:
    """Simulate one fleet; ``compares``: whether each decision is taken from scratch as well."""
    scenario, faults = random_fleet(seed)
    fleet = Fleet(scenario, faults, seed, compares=compares)
    fleet.run(END_S, rules.at_each_moment)
    problems = fleet.problems or rules.at_rest(fleet)
    return Outcome(problems=tuple(problems), story=tuple(fleet.story), decisions=fleet.decisions)


def tell(seed: int, outcome: Outcome) -> str:
    """A seed in words."""
    scenario, faults = random_fleet(seed)
    lines = [f"nodes {list(zip(scenario.nodes, scenario.node_labels, strict=True))}", f"queues {scenario.queues}"]
    lines += [str(each) for each in (*scenario.services, *scenario.jobs, *sorted(faults, key=lambda each: each.second))]
    return "\n".join([*lines, *outcome.story, *outcome.problems])
