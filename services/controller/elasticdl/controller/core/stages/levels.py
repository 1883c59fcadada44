"""Running jobs by their shares; those that are alike are one level, and are looked at once."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.plan import Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.resources import Amounts

Rank = tuple[bool, float]
"""Whether one more worker would be borrowed; the job's share. Jobs with the smallest one get the next worker."""
Order = tuple[int, bool, float, str]
"""Place of a job in the order in which jobs are admitted."""
Place = tuple[Order, Job]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Kind:
    """What jobs demand and may have, as one object for all that have it in common: it is compared by its identity."""

    facts: tuple[Hashable, ...]


Key = tuple[Rank, Kind, int, int, Amounts]
"""What the jobs of a level have in common: share, kind, workers, ps, and what these take.

One of them takes a worker as any other does, and has the same share then.
"""


def rank_of(plan: Plan, job: Job) -> Rank:
    """The job's place among all."""
    return bool(job.queue) and plan.quotas.is_over(job, job.worker.request), plan.share(job.name)


def key_of(plan: Plan, job: Job, kind: Kind) -> Key:
    """The level of a job now."""
    name = job.name
    return rank_of(plan, job), kind, plan.workers(name), plan.ps(name), plan.taken[name]


def _facts(plan: Plan, job: Job, policy: Policy) -> tuple[Hashable, ...]:
    if plan.quotas.is_limiting:
        return (job.name,)  # Each worker changes what the queues and budgets leave.
    requests, workers, ps = plan.requests[job.name], job.worker, job.ps
    return (
        requests[Role.WORKER],
        requests[Role.PS],
        job.workers_min,  # Who may give one to others.
        workers.max,
        ps.min,
        ps.max,
        workers.constraint,
        ps.constraint,
        job.priority,
        job.weight,
        job.curve.points,
        job.ps_load,
        job.ps_load_workers,
        job.ps_load_ps,
        policy.left_s(job),
        job.pause_s,
        job.refused_s,
        job.forbidden,
    )


class Levels:
    """The running jobs that may take a worker. They are kept between decisions, as most stay where they are."""

    def __init__(self) -> None:
        self.places: dict[Key, list[Place]] = {}
        """Level -> its jobs, in order."""
        self.of: dict[str, tuple[Key, Place]] = {}
        self._kinds = WeakValueDictionary[tuple[Hashable, ...], Kind]()

    def key_of(self, plan: Plan, job: Job, policy: Policy) -> Key:
        """The level of a job that is new, or has changed."""
        facts = _facts(plan, job, policy)
        if (kind := self._kinds.get(facts)) is None:
            kind = self._kinds[facts] = Kind(facts)
        return key_of(plan, job, kind)

    def update(self, changes: Mapping[str, tuple[Key, Place] | None]) -> None:
        """Jobs come, change and go (None)."""
        for name, now in changes.items():
            before = self.of.pop(name, None)
            if now is not None:
                self.of[name] = now
            if before is not None:
                key, place = before
                places = self.places[key]
                number = bisect_left(places, place[0], key=_order)
                if now is not None and key == now[0] and place[0] == now[1][0]:
                    places[number] = now[1]
                    continue
                del places[number]
                if not places:
                    del self.places[key]
            if now is not None:
                insort(self.places.setdefault(now[0], []), now[1], key=_order)


def _order(place: Place) -> Order:
    return place[0]


@dataclass(eq=False, slots=True)
class Level:
    """Jobs of a level whose turn is to come, in order."""

    key: Key
    places: list[Place]


class Turns:
    """Levels by their ranks, in one decision; of those with the same rank, the one with the first job comes first.

    Args:
        without: jobs that get no turn.
    """

    def __init__(self, levels: Levels, without: Collection[str]) -> None:
        found = levels.places
        if without:
            found = {key: [each for each in places if each[1].name not in without] for key, places in found.items()}
        self._levels = {key: Level(key, places) for key, places in found.items() if places}
        self._heap = [
            (key[0], level.places[0][0], number, level) for number, (key, level) in enumerate(self._levels.items())
        ]
        heapq.heapify(self._heap)
        self._numbered = len(self._heap)

    def push(self, key: Key, places: list[Place]) -> None:
        """Jobs get a turn at a level."""
        if (level := self._levels.get(key)) is None:
            level = self._levels[key] = Level(key, places)
        elif level.places[-1][0] < places[0][0]:
            level.places = [*level.places, *places]
            return  # The first one is as it was.
        else:
            level.places = sorted([*level.places, *places], key=_order)
        self._numbered += 1
        heapq.heappush(self._heap, (key[0], level.places[0][0], self._numbered, level))

    def pop(self) -> Level | None:
        """The level whose turn it is."""
        while self._heap:
            _, order, _, level = heapq.heappop(self._heap)
            if self._levels.get(level.key) is level and level.places[0][0] == order:
                del self._levels[level.key]
                return level
        return None
