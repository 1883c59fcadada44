"""The loop of a simulation: events, the plain scheduler, and the policy a moment after each change."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from pathlib import Path

from elasticdl.controller.core import Planner
from elasticdl.controller.history.recording import RecordingPlanner
from elasticdl.controller.sim.measures import Measures, Result
from elasticdl.controller.sim.rivals import Edl, gang
from elasticdl.controller.sim.scenario import Scenario
from elasticdl.controller.sim.world import World
from elasticdl.shared.errors import UserError
from elasticdl.shared.words import some_of

React = Callable[[World], None]


class Ours:
    """The scheduling core; ``record``: a file for what it sees and decides."""

    def __init__(self, record: Path | None = None) -> None:
        self._planner = RecordingPlanner(record, _refuse) if record else Planner()

    def __call__(self, world: World) -> None:
        """Decide, and give the orders."""
        planner = self._planner
        targets = planner.decide(planner.view.changes_to(world.cluster(), world.core_jobs()), world.now_s)
        for target in targets.jobs:
            for start in target.starts:
                world.order(start)
            for pod in target.drains:
                world.drain(target.job, pod)

    def close(self) -> None:
        """Write the end of the file."""
        if isinstance(self._planner, RecordingPlanner):
            self._planner.close()


def _refuse(problem: str) -> None:
    raise UserError(problem)


POLICIES: Mapping[str, Callable[[], React]] = {"ours": Ours, "gang": lambda: gang, "edl": Edl}
"""Name -> a policy without memory of earlier simulations."""

_SECONDS_MAX = 1_000_000.0
_IDLE_S_MAX = 10_000.0
"""A scenario without a length ends once no job has trained for this long."""
_JOBS_SHOWN = 5


def simulate(scenario: Scenario, policy: str = "ours", seed: int = 0, record: Path | None = None) -> Result:
    """Run a scenario under a policy, until its end or until all jobs have finished.

    Args:
        record: a file for what the policy "ours" sees and decides.

    Raises:
        UserError: the scenario has no end, and jobs never finish; or the file can't be written.
    """
    world, react = World(scenario, seed), Ours(record) if policy == "ours" else POLICIES[policy]()
    measures = Measures(world)
    end_s = scenario.seconds or _SECONDS_MAX
    planned = False
    last_change_s = max(
        (*(job.submit_s for job in scenario.jobs), *(each.replicas[-1][0] for each in scenario.services)), default=0.0
    )

    def decision() -> None:
        nonlocal planned
        planned = world.changed = False
        react(world)

    while world.events and world.events[0][0] < end_s and not _done(world):
        second = world.events[0][0]
        if any(job.speed for job in world.jobs.values() if job.finished_s is None):
            last_change_s = max(last_change_s, second)
        elif scenario.seconds is None and second > last_change_s + _IDLE_S_MAX:
            break
        measures.advance(second)
        world.advance(second)
        while world.events and world.events[0][0] == second:
            heapq.heappop(world.events)[2]()
        world.schedule()
        if world.changed and not planned:
            planned = True
            world.after(world.times.reaction, decision)
    if scenario.seconds is None and not _done(world):
        finished = {name for name, job in world.jobs.items() if job.finished_s is not None}
        waiting = [job.name for job in scenario.jobs if job.name not in finished]
        raise UserError(
            f"Scenario {scenario.name} does not end under the policy {policy}: {some_of(waiting, _JOBS_SHOWN)} never "
            "finished.",
            hint="Give it seconds, or nodes with more room.",
        )
    if scenario.seconds is not None:
        measures.advance(scenario.seconds)
        world.advance(scenario.seconds)
    if isinstance(react, Ours):
        react.close()
    return measures.result(policy, seed)


def _done(world: World) -> bool:
    """Whether a scenario without a length is over."""
    finished = [job.finished_s is not None for job in world.jobs.values()]
    return world.scenario.seconds is None and len(finished) == len(world.scenario.jobs) and all(finished)
