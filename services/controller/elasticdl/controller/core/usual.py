"""Which pods are usual: rooms are compared by how many of these they hold."""

from __future__ import annotations

from collections import Counter

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.job import Group, Job
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.resources import Amounts, Shape, Units, shape_of


class Usual:
    """Requests and constraints of all jobs, and how many pods have them."""

    def __init__(self) -> None:
        self._workers: Counter[Shape] = Counter()
        self._ps: Counter[Shape] = Counter()
        """Pods of active jobs by their requests."""
        self._constraints: Counter[Constraint] = Counter()

    def count(self, job: Job, times: int) -> None:
        """A job comes (1) or goes (-1)."""
        for role in Role:
            self.count_constraint(job.group(role).constraint, times)
        if not (job.finished or job.suspended):
            _count(self._workers, job.worker, times)
            _count(self._ps, job.ps, times)

    def count_constraint(self, constraint: Constraint, times: int) -> None:
        """Pods with a constraint come or go."""
        self._constraints[constraint] += times
        if not self._constraints[constraint]:
            del self._constraints[constraint]

    def constraints(self) -> frozenset[Constraint]:
        """All that pods have."""
        return frozenset(self._constraints)

    def requests(self, units: Units) -> tuple[Amounts, Amounts]:
        """The requests of most workers and of most ps."""
        return units.amounts(dict(_most_common(self._workers))), units.amounts(dict(_most_common(self._ps)))


def _most_common(numbers: Counter[Shape]) -> Shape:
    return max(numbers, key=lambda shape: (numbers[shape], shape), default=())


def _count(numbers: Counter[Shape], group: Group, times: int) -> None:
    shape = shape_of(group.request)
    numbers[shape] += times * group.max
    if not numbers[shape]:
        del numbers[shape]
