"""A job as the core sees it: what it asks for, and what was measured."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.placement import ANYWHERE, Constraint
from elasticdl.controller.core.resources import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Pods of a job with the same role."""

    request: Resources
    min: int = 1
    max: int = 1
    constraint: Constraint = ANYWHERE

    def __post_init__(self) -> None:
        """Check the limits."""
        if not 0 <= self.min <= self.max:
            raise ValueError(f"min {self.min} and max {self.max} are no range.")


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured throughput by number of workers, in any unit; straight lines between and beyond the points.

    Without points, each worker adds as much as the first.
    """

    points: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Check the order of the points."""
        workers = [0, *(each for each, _ in self.points)]
        if workers != sorted(set(workers)):
            raise ValueError("The points of a curve are sorted by their number of workers, which is 1 or more.")

    def speed(self, workers: int) -> float:
        """Throughput of a number of workers."""
        if not self.points or workers <= 0:
            return float(max(workers, 0))
        points = ((0, 0.0), *self.points)
        right = min(max(1, bisect_left(points, (workers, float("-inf")))), len(points) - 1)
        (left_x, left_y), (right_x, right_y) = points[right - 1], points[right]
        return left_y + (right_y - left_y) * (workers - left_x) / (right_x - left_x)

    def gain(self, workers: int) -> float:
        """What one more worker adds, as a fraction of what the first one does."""
        if not self.points:
            return 1.0
        return (self.speed(workers + 1) - self.speed(workers)) / max(self.speed(1), 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job. Jobs are told apart by their names."""

    name: str
    master: Group
    ps: Group
    worker: Group
    created_s: float = 0.0
    priority: int = 0
    weight: float = 1.0
    """Share of the spare room, relative to other jobs."""
    queue: str = ""
    """Whose quota it uses; empty: it needs none."""
    namespace: str = ""
    """Whose budgets it uses, if that has any."""
    finished: bool = False
    suspended: bool = False
    curve: Curve = field(default_factory=Curve)
    ps_load: float | None = None
    """Busy fraction (0 to 1) of the ps, averaged over them. None: not measured yet."""
    ps_load_workers: int = 0
    """Number of workers that trained while the load was measured."""
    ps_load_ps: int = 0
    """Number of ps that worked then. 0: as many as there are now."""
    remaining_s: float | None = None
    """Estimate of the time that is left. None: unknown."""
    pause_s: float = 0.0
    """How long training pauses when the number of workers changes."""
    refused_s: float | None = None
    """When an order for this job was last refused, or one of its pods could not start."""
    forbidden: str = ""
    """Why the cluster would refuse its pods, whatever room there is; empty: it would not."""

    def __post_init__(self) -> None:
        """Check what decisions divide by."""
        if self.weight <= 0 or self.worker.max < 1 or self.master.min != 1:
            raise ValueError(f"Job {self.name} needs a positive weight, a worker and one master.")

    def group(self, role: Role) -> Group:
        """The group of a role."""
        if role is Role.WORKER:
            return self.worker
        return self.ps if role is Role.PS else self.master

    def least(self, role: Role) -> int:
        """Pods of a role in the gang."""
        if role is Role.WORKER:
            return self.workers_min
        return self.ps.min if role is Role.PS else 1

    def has_requests_of(self, other: Job) -> bool:
        """Whether the pods of both jobs take the same room."""
        return all(self.group(role).request == other.group(role).request for role in Role)

    @property
    def workers_min(self) -> int:
        """Workers without which the job is not admitted: at least one."""
        return max(1, self.worker.min)
