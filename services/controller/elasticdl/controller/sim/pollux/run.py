"""The loop: jobs train for 60 seconds, then a policy decides which GPUs each of them has from now on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from elasticdl.controller.sim.pollux.applications import Application
from elasticdl.controller.sim.pollux.baselines import Nodes, Optimus, Tiresias
from elasticdl.controller.sim.pollux.data import Data
from elasticdl.controller.sim.pollux.jobs import AsSubmitted, SimJob

NODE_GPUS = (4,) * 16
INTERVAL_S = 60
PAUSE_S = 30
"""A job does not train for this long after its GPUs have changed."""


class Policy(Protocol):
    """Who gets which GPUs."""

    def decide(self, now_s: int, jobs: Mapping[str, SimJob], held: Mapping[str, Nodes]) -> dict[str, Nodes]:
        """The GPUs of each job from now on; jobs are those that have been submitted and have not finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a workload went."""

    policy: str
    load: float
    workload: int
    jct_s: Mapping[str, int]
    """Job -> seconds from its submission to its end."""
    restarts: int

    @property
    def mean_jct_s(self) -> float:
        """Over all jobs."""
        return sum(self.jct_s.values()) / len(self.jct_s)


POLICIES: Mapping[str, Callable[[Sequence[int], int], Policy]] = {"tiresias": Tiresias, "optimus": Optimus}


def simulate(
    data: Data, applications: Mapping[str, Application], policy: str, load: float, workload: int, pause_s: int = PAUSE_S
) -> Outcome:
    """Run a workload until all its jobs have finished."""
    decider = POLICIES[policy](NODE_GPUS, INTERVAL_S)
    submissions = data.workload(load, workload)
    jobs = {each.name: SimJob(each, applications[each.application], AsSubmitted()) for each in submissions}
    waiting = sorted(submissions, key=lambda each: each.submit_s)
    order = {each.name: number for number, each in enumerate(submissions)}
    active: dict[str, SimJob] = {}
    held: dict[str, Nodes] = {}
    now_s = 0
    while waiting or active:
        for job in active.values():
            job.advance(now_s, INTERVAL_S)
        now_s += INTERVAL_S
        names = {name for name, job in active.items() if job.end_s is None}
        while waiting and waiting[0].submit_s <= now_s:
            names.add(waiting.pop(0).name)
        active = {name: jobs[name] for name in sorted(names, key=order.__getitem__)}
        held = {name: nodes for name, nodes in held.items() if name in active}
        if not active:
            continue
        granted = decider.decide(now_s, active, held)
        for name, job in active.items():
            if (nodes := granted.get(name, ())) != held.get(name, ()):
                job.place(tuple(len(list(same)) for _, same in groupby(nodes)), pause_s)
        held = granted
    jct_s = {name: (job.end_s or 0) - job.spec.submit_s for name, job in jobs.items()}
    restarts = sum(job.restarts for job in jobs.values())
    return Outcome(policy=policy, load=load, workload=workload, jct_s=jct_s, restarts=restarts)
