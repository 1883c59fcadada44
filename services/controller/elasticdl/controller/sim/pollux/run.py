"""The loop: jobs train for 60 seconds, then a policy decides which GPUs each of them has from now on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Protocol

from elasticdl.controller.sim.pollux.applications import Application
from elasticdl.controller.sim.pollux.baselines import Optimus, Tiresias
from elasticdl.controller.sim.pollux.data import Data
from elasticdl.controller.sim.pollux.gangs import Gang
from elasticdl.controller.sim.pollux.jobs import AsSubmitted, Batching, SimJob
from elasticdl.controller.sim.pollux.ours import Ours

NODE_GPUS = (4,) * 16
INTERVAL_S = 60


class Scheduler(Protocol):
    """Decides which GPUs each job gets."""

    def decide(self, now_s: int, jobs: Mapping[str, SimJob], held: Mapping[str, Gang], /) -> dict[str, Gang]:
        """The GPUs of each job from now on; jobs are those that have been submitted and have not finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a workload went under a policy."""

    policy: str
    load: float
    workload: int
    jct_s: Mapping[str, int]
    """Job -> seconds from its submission to its end."""
    restarts: int
    """Changes of GPUs while a job had some, or after it had some."""

    @property
    def mean_jct_s(self) -> float:
        """Over all jobs."""
        return sum(self.jct_s.values()) / len(self.jct_s)


def _ours(node_gpus: Sequence[int], pause_s: int) -> tuple[Scheduler, Batching]:
    ours = Ours(node_gpus, pause_s)
    return ours, ours


POLICIES: Mapping[str, Callable[[Sequence[int], int], tuple[Scheduler, Batching]]] = {
    "ours": _ours,
    "tiresias": lambda node_gpus, _: (Tiresias(node_gpus, INTERVAL_S), AsSubmitted()),
    "optimus": lambda node_gpus, _: (Optimus(node_gpus), AsSubmitted()),
}
"""Name -> what decides about GPUs, and what about batch sizes."""


class Cluster:
    """Pollux' cluster: 16 nodes with 4 GPUs each.

    Args:
        data: the published files.
    """

    def __init__(self, data: Data) -> None:
        self.data = data
        self._application = cache(lambda name: Application(data, name))

    def simulate(self, policy: str, load: float, workload: int, pause_s: int) -> Outcome:
        """Run a workload until all its jobs have finished.

        Args:
            policy: one of ``POLICIES``.
            load: one of ``LOADS``.
            workload: its number, from 1 to 8.
            pause_s: how long a job does not train after its GPUs have changed.

        Raises:
            UserError: there is no such workload; or SciPy is missing, which a trace needs.
        """
        scheduler, batching = POLICIES[policy](NODE_GPUS, pause_s)
        submissions = self.data.workload(load, workload)
        jobs = {each.name: SimJob(each, self._application(each.application), batching) for each in submissions}
        held: dict[str, Gang] = {}
        for now_s, active in _intervals(jobs):
            granted = scheduler.decide(now_s, active, {name: gang for name, gang in held.items() if name in active})
            for name, job in active.items():
                if (gang := granted.get(name, ())) != held.get(name, ()):
                    job.place(tuple(len(list(same)) for _, same in groupby(gang)), pause_s)
            held = granted
        return Outcome(
            policy=policy,
            load=load,
            workload=workload,
            jct_s={name: (job.end_s or 0) - job.spec.submit_s for name, job in jobs.items()},
            restarts=sum(max(job.restarts, 0) for job in jobs.values()),
        )


def _intervals(jobs: Mapping[str, SimJob]) -> Iterator[tuple[int, dict[str, SimJob]]]:
    """After each interval: (second, the jobs that have been submitted and have not finished)."""
    now_s, left = 0, dict(jobs)
    while left:
        for job in left.values():
            job.advance(now_s, INTERVAL_S)
        now_s += INTERVAL_S
        left = {name: job for name, job in left.items() if job.end_s is None}
        active = {name: job for name, job in left.items() if job.spec.submit_s <= now_s}
        if active:
            yield now_s, active
