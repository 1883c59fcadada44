"""Jobs that pause when their workers change: which number of workers is worth its pause.

Workers that exchange their gradients restart together, so each change costs all of them a pause. ``fill`` gives workers
one by one, which would be a pause each. Here a number of workers is worth the logarithm of the speedup, so one percent
of speed is worth the same to every job, and a price of workers decides (``prices``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticdl.controller.core.job import Job
from elasticdl.controller.sim.pollux.gangs import Gang, place
from elasticdl.controller.sim.pollux.prices import Worth, divide


@dataclass(frozen=True, slots=True, kw_only=True)
class PausePolicy:
    """What a number of workers is worth."""

    horizon_s: float = 300.0
    """How long a number of workers is expected to stay."""
    worker_worth: float = 3.0
    """What a first worker is worth, as a natural logarithm of a speedup: it goes before a 20-fold speedup of others."""
    service_s: float = 3600.0
    """A job that had this many seconds of one worker is worth 2 ** -service_power of a new one."""
    service_power: float = 0.5
    """0: all are worth the same."""
    service_max_s: float = 100_000.0
    """Beyond this, a job is not worth less any more: jobs that all had much do not wait for each other."""

    def __post_init__(self) -> None:
        """Check what decisions divide by."""
        if self.horizon_s <= 0 or self.service_s <= 0:
            raise ValueError("horizon_s and service_s are above 0.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescalable:
    """A job, and what it has had. The points of its curve are the numbers of workers that it may have."""

    job: Job
    gang: Gang = ()
    """Where its workers are."""
    restarts: int = 0
    """How often its workers have changed since the first ones started."""
    service_s: float = 0.0
    """Seconds of one worker that it has had."""

    def __post_init__(self) -> None:
        """Check what decisions divide by."""
        if self.job.curve.speed(1) <= 0:
            raise ValueError(f"The curve of job {self.job.name} says that one worker does nothing.")


def rescale(jobs: Sequence[Rescalable], rooms: Sequence[int], now_s: float, policy: PausePolicy) -> dict[str, Gang]:
    """The workers of each job from now on.

    Args:
        jobs: all that want workers.
        rooms: how many workers each node takes.
        now_s: on the clock of ``Job.created_s``.
    """
    worths = {each.job.name: _worth(each, now_s, policy) for each in jobs}
    held: Mapping[str, Gang] = {each.job.name: each.gang for each in jobs}
    return place(divide(worths, sum(rooms)), held, rooms)


def _worth(each: Rescalable, now_s: float, policy: PausePolicy) -> Worth:
    """What each number of workers is worth; one worker that is never paused: ``worker_worth`` times the weight."""
    job, held = each.job, len(each.gang)
    weight = job.weight * (1 + min(each.service_s, policy.service_max_s) / policy.service_s) ** -policy.service_power
    kept = _kept(each, now_s, policy) if held else 1.0
    worth, alone = [(0, 0.0)], job.curve.speed(1)
    for workers, speed in job.curve.points:
        speedup = speed / alone * (1.0 if workers == held else kept)
        worth.append((workers, weight * (policy.worker_worth + math.log(max(speedup, 1e-3)))))
    return worth


def _kept(each: Rescalable, now_s: float, policy: PausePolicy) -> float:
    """The fraction of a speed that one more pause leaves.

    It is lost from the time until the next change, and from the time since the job was submitted: so a job that was
    paused often needs a larger gain.
    """
    pause_s, age_s = each.job.pause_s, now_s - each.job.created_s
    until_next = 1 - pause_s / policy.horizon_s
    so_far = 1 - (each.restarts + 1) * pause_s / (age_s + pause_s)
    return max(until_next, 0.0) * max(so_far, 0.0)
