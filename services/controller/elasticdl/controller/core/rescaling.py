"""Jobs that pause when their workers change: which number of workers is worth its pause.

Workers that exchange their gradients restart together, so each change costs all of them a pause. ``fill`` gives workers
one by one, which would be a pause each. Here a number of workers is worth the logarithm of the speedup, so one percent
of speed is worth the same to every job, and a price of workers decides (``prices``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticdl.controller.core.gangs import Gang, place
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.prices import Worth, divide


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


def rescale(jobs: Sequence[Rescalable], rooms: Sequence[int], now_s: float, policy: Policy) -> dict[str, Gang]:
    """The workers of each job from now on.

    Args:
        jobs: all that want workers.
        rooms: how many workers each node takes.
        now_s: on the clock of ``Job.created_s``.
        policy: its ``horizon_s`` is how long a number of workers is expected to stay.
    """
    worths = {each.job.name: _worth(each, now_s, policy) for each in jobs}
    held: Mapping[str, Gang] = {each.job.name: each.gang for each in jobs}
    return place(divide(worths, sum(rooms)), held, rooms)


def _worth(each: Rescalable, now_s: float, policy: Policy) -> Worth:
    """What each number of workers is worth; one worker that is never paused: ``worker_worth`` times the weight."""
    job, held = each.job, len(each.gang)
    weight = job.weight * (1 + min(each.service_s, policy.service_max_s) / policy.service_s) ** -policy.service_power
    kept = _kept(each, now_s, policy) if held else 1.0
    worth, alone = [(0, 0.0)], job.curve.speed(1)
    for workers, speed in job.curve.points:
        speedup = speed / alone * (1.0 if workers == held else kept)
        worth.append((workers, weight * (policy.worker_worth + math.log(max(speedup, 1e-3)))))
    return worth


def _kept(each: Rescalable, now_s: float, policy: Policy) -> float:
    """The fraction of a speed that one more pause leaves.

    It is lost from the time until the next change, and from the time since the job was submitted: so a job that was
    paused often needs a larger gain.
    """
    pause_s, age_s = each.job.pause_s, now_s - each.job.created_s
    until_next = 1 - pause_s / policy.horizon_s
    so_far = 1 - (each.restarts + 1) * pause_s / (age_s + pause_s)
    return max(until_next, 0.0) * max(so_far, 0.0)
