"""What the core answers: for each job, what it should have, the orders that are missing, and why."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.controller.core.cluster import Start
from elasticdl.shared.words import count


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTarget:
    """The target of one job. The orders complete what is there and what was ordered before."""

    job: str
    admitted: bool
    workers: int
    ps: int
    reason: str
    starts: tuple[Start, ...] = ()
    drains: tuple[str, ...] = ()
    """Names of pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """One target for each job, in the order in which jobs are admitted."""

    jobs: tuple[JobTarget, ...]

    def of(self, job: str) -> JobTarget:
        """The target of a job."""
        return next(each for each in self.jobs if each.job == job)


def pods_text(workers: int, ps: int) -> str:
    """``1 worker and 2 ps``."""
    return f"{count(workers, 'worker')} and {ps} ps"
