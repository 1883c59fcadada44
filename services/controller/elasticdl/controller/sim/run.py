"""The loop of a simulation: events, the plain scheduler, and the policy a moment after each change."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

from elasticdl.controller.core import decide
from elasticdl.controller.sim.measures import Measures, Result
from elasticdl.controller.sim.rivals import Edl, gang
from elasticdl.controller.sim.scenario import Scenario
from elasticdl.controller.sim.world import World

React = Callable[[World], None]


def ours(world: World) -> None:
    """The scheduling core."""
    targets = decide(world.cluster(), world.core_jobs(), world.now_s)
    for target in targets.jobs:
        for start in target.starts:
            world.order(start)
        for pod in target.drains:
            world.drain(target.job, pod)


POLICIES: Mapping[str, Callable[[], React]] = {"ours": lambda: ours, "gang": lambda: gang, "edl": Edl}
"""Name -> a policy without memory of earlier simulations."""

_SECONDS_MAX = 1_000_000.0


def simulate(scenario: Scenario, policy: str = "ours", seed: int = 0) -> Result:
    """Run a scenario under a policy, until its end or until all jobs have finished."""
    world, react = World(scenario, seed), POLICIES[policy]()
    measures = Measures(world)
    end_s = scenario.seconds or _SECONDS_MAX
    planned = False

    def decision() -> None:
        nonlocal planned
        planned = world.changed = False
        react(world)

    while world.events and world.events[0][0] < end_s and not _done(world):
        second = world.events[0][0]
        measures.advance(second)
        world.advance(second)
        while world.events and world.events[0][0] == second:
            heapq.heappop(world.events)[2]()
        world.schedule()
        if world.changed and not planned:
            planned = True
            world.after(world.times.reaction, decision)
    if scenario.seconds is not None:
        measures.advance(scenario.seconds)
        world.advance(scenario.seconds)
    return measures.result(policy, seed)


def _done(world: World) -> bool:
    """Whether a scenario without a length is over."""
    finished = [job.finished_s is not None for job in world.jobs.values()]
    return world.scenario.seconds is None and len(finished) == len(world.scenario.jobs) and all(finished)
