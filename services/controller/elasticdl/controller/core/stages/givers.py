"""The jobs that give workers to others, by share. They are kept between decisions."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Generator, Set
from contextlib import closing

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.plan import Plan

_TRIED_MAX = 64
"""Most jobs from which a worker is tried to be taken for one of another job."""


def may_take(plan: Plan, giver: str, taker: Job) -> bool:
    """Whether a worker may leave one job for another one.

    A queue within its quota takes from one above it, never the other way round. Otherwise the giver must keep at least
    the taker's share. So each transfer lowers what is borrowed or raises the smaller share, and two jobs never take
    from each other in turns.
    """
    if giver == taker.name:
        return False
    by_quota = owed(plan, giver, taker)
    return plan.share(giver, -1) >= plan.share(taker.name, 1) if by_quota is None else by_quota


def owed(plan: Plan, giver: str, taker: Job) -> bool | None:
    """Whether the quotas of their queues decide that a job gives to another one; None: their shares do."""
    if (job := plan.jobs[giver]).queue == taker.queue:
        return None
    gives_back, borrows = plan.quotas.is_over(job), plan.quotas.is_over(taker, taker.worker.request)
    return gives_back if gives_back != borrows else None


class Givers:
    """The running jobs that have workers above their minimum, by share.

    Entries that are no longer true are dropped when they come up. Jobs whose share has changed are entered when a taker
    asks next: most decisions have many starts and few questions.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._resized = plan.resized
        self._stuck: Set[str] = frozenset()
        self._heap: list[tuple[float, str]] = []
        self._after: list[tuple[float, str]] = []
        """By the share that is left after giving one."""
        self._changed: set[str] = set(plan.with_surplus)
        self._barred: set[str] = set()
        """Those that may give later: they have no master now, or a pod that can't start."""

    def begin(self, changed: Collection[str], stuck: Set[str]) -> None:
        """A decision begins to share what is left; ``changed``: jobs whose pods have changed since the last one."""
        self._stuck = stuck
        self._changed.update(changed, self._barred)
        self._barred.clear()
        if self._resized != self._plan.resized or len(self._heap) > 4 * len(self._plan.jobs):
            self._resized = self._plan.resized
            self._heap, self._after, self._changed = [], [], set(self._plan.with_surplus)

    def note(self, *jobs: str) -> None:
        """The shares of jobs have changed."""
        self._changed.update(jobs)

    def _enter_changed(self) -> None:
        plan, changed = self._plan, self._changed & self._plan.with_surplus
        self._changed.clear()
        if 4 * len(changed) > len(self._heap):
            self._heap.extend([(-plan.share(name), name) for name in changed])
            self._after.extend([(-plan.share(name, -1), name) for name in changed])
            heapq.heapify(self._heap)
            heapq.heapify(self._after)
            return
        for name in changed:
            self._enter(name)

    def _enter(self, name: str) -> None:
        heapq.heappush(self._heap, (-self._plan.share(name), name))
        heapq.heappush(self._after, (-self._plan.share(name, -1), name))

    def _may_give(self, name: str) -> bool:
        plan = self._plan
        if name not in plan.with_surplus:
            return False
        if name not in self._stuck and plan.members[name][Role.MASTER]:
            return True
        self._barred.add(name)
        return False

    def _can_give(self, wanted: float) -> bool:
        """Whether a job keeps this share after giving a worker."""
        plan, heap = self._plan, self._after
        while heap:
            share, name = heap[0]
            may_give = self._may_give(name)
            if may_give and -share == plan.share(name, -1):
                return -share >= wanted
            heapq.heappop(heap)
            if may_give:
                heapq.heappush(heap, (-plan.share(name, -1), name))
        return False

    def of(self, taker: Job) -> Generator[str, None, None]:
        """Those that may give the taker a worker, the largest share first."""
        self._enter_changed()
        plan, heap, has_queues = self._plan, self._heap, bool(self._plan.quotas.queues)
        found: list[tuple[float, str]] = []
        names: set[str] = set()
        wanted = plan.share(taker.name, 1)
        if not has_queues and not self._can_give(wanted):
            return
        try:
            while heap and len(found) < _TRIED_MAX:
                share, name = heap[0]
                may_give = name not in names and self._may_give(name)
                if not may_give or -share != plan.share(name):
                    heapq.heappop(heap)
                    if may_give:
                        heapq.heappush(heap, (-plan.share(name), name))
                    continue
                if -share < wanted and not has_queues:
                    break  # After giving it would have even less, as would all that follow.
                names.add(name)
                found.append(heapq.heappop(heap))
                if may_take(plan, name, taker):
                    yield name
        finally:
            for entry in found:
                heapq.heappush(heap, entry)

    def any_of(self, taker: Job) -> bool:
        """Whether there may be one."""
        with closing(self.of(taker)) as givers:
            return next(givers, None) is not None
