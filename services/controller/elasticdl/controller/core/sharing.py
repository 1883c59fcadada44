"""What is left after the gangs: by dominant share and weight, to workers that add something."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import closing

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.moves import gain
from elasticdl.controller.core.packing import start_all
from elasticdl.controller.core.plan import Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.resources import add, fits, plus

_GIVERS_TRIED = 64
"""Most jobs from which a worker is tried to be taken for one of another job."""
_REFUSED = "no growth so soon after a refusal"


def scale_ps(plan: Plan, running: Sequence[Job], now_s: float, policy: Policy) -> None:
    """Match the ps to the workers that are there. A job's own workers make room for its ps, if need be.

    But not if there are so few workers then that the ps would leave again.
    """
    for job in running:
        ps = plan.ps(job.name)
        wanted = policy.ps_wanted(job, plan.workers(job.name), ps)
        if wanted > ps and policy.may_grow(job, now_s):
            for _ in range(wanted - ps):
                if plan.quotas.refusal(job, job.ps.request):
                    break
                mark = plan.mark()
                if not start_all(plan, job.name, Role.PS, 1, _only(job.name), giver=job.name):
                    break
                if policy.ps_wanted(job, plan.workers(job.name), plan.ps(job.name)) < plan.ps(job.name):
                    plan.undo(mark)
                    break
        elif wanted < ps and not plan.leaving[job.name, Role.PS]:
            plan.drain(
                min(plan.members[job.name][Role.PS].values(), key=lambda each: (-gain(plan, each), each.node, each.pod))
            )


def _only(job: str) -> Callable[[str], bool]:
    return lambda other: other == job


def fill(plan: Plan, running: Sequence[Job], now_s: float, policy: Policy, reasons: dict[str, str]) -> None:
    """Give workers one by one to the job with the smallest share, from free room or from a job with a larger share.

    Jobs of queues that stay within their quota come first.
    """
    givers, hopeless = Givers(plan, running), _Hopeless(plan)
    ranked = sorted([(_rank(plan, job), number, job) for number, job in enumerate(running)])
    again: list[tuple[tuple[bool, float], int, Job]] = []
    """Those that have got a worker."""
    has_queues = bool(plan.quotas.queues)
    for rank, number, job in _merged(ranked, again):
        may_differ = has_queues or job.name in plan.touched
        if may_differ and (now := _rank(plan, job)) != rank:  # It gave a worker away meanwhile, or its queue did.
            heapq.heappush(again, (now, number, job))
            continue
        if (stop := plan.stops.get(job.name)) is not None:
            reasons.setdefault(job.name, stop)
        elif (refusal := hopeless.refusal(job)) is not None:
            reasons.setdefault(job.name, refusal)
        elif stop := _full(plan, job, now_s, policy):
            text = f"{plan.workers(job.name)} workers and {plan.ps(job.name)} ps: {stop}"
            reasons.setdefault(job.name, text)
            if stop != _REFUSED:
                plan.stops[job.name] = text
        elif not (refusal := _grow(plan, job, policy, givers)):
            givers.note(job.name)
            heapq.heappush(again, (_rank(plan, job), number, job))
        else:
            hopeless.note(job, policy, refusal)
            reasons.setdefault(job.name, refusal)


def _merged(
    ranked: Sequence[tuple[tuple[bool, float], int, Job]], again: list[tuple[tuple[bool, float], int, Job]]
) -> Iterator[tuple[tuple[bool, float], int, Job]]:
    """The entries of a sorted list and of a heap, the smallest first. The heap may grow meanwhile."""
    for entry in ranked:
        while again and again[0] < entry:
            yield heapq.heappop(again)
        yield entry
    while again:
        yield heapq.heappop(again)


class _Hopeless:
    """Jobs that can't grow, because one that is alike could not in the same plan.

    Without queues and budgets, a job with a larger share may take from fewer others. With a ps, only jobs with the same
    share are alike: which room a ps takes depends on who yields.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._found: dict[tuple[Hashable, ...], tuple[int, float, str]] = {}

    def refusal(self, job: Job) -> str | None:
        """Why the job can't grow; None: that is not known."""
        if (trial := self._plan.trials.get(job.name)) is None or job.refused_s is not None:
            return None
        key, share = trial
        version, least, refusal = self._found.get(key, (-1, 0.0, ""))
        return refusal if version == self._plan.version and share >= least else None

    def note(self, job: Job, policy: Policy, refusal: str) -> None:
        """A job could not grow."""
        plan = self._plan
        if plan.quotas.is_limiting:
            return
        share, requests = plan.share(job.name, 1), plan.requests[job.name]
        key: tuple[Hashable, ...] = requests[Role.WORKER], job.worker.constraint
        if _needs_ps(plan, job, policy):
            key = *key, requests[Role.PS], job.ps.constraint, share
        plan.trials[job.name] = key, share
        self._found[key] = plan.version, share, refusal


def _rank(plan: Plan, job: Job) -> tuple[bool, float]:
    """Jobs with the smallest rank get the next worker."""
    return bool(job.queue) and plan.quotas.is_over(job, job.worker.request), plan.share(job.name)


def _full(plan: Plan, job: Job, now_s: float, policy: Policy) -> str:
    """Why the job takes no further worker; empty if it does."""
    workers = plan.workers(job.name)
    if workers >= job.worker.max:
        return "its maximum"
    if not policy.may_grow(job, now_s):
        return job.forbidden or _REFUSED
    if not policy.worth(job, workers):
        return "one more would not win back its cost"
    if not plan.admitted(job.name) or plan.ps(job.name) < job.ps.min:
        return "its gang is incomplete"
    return ""


def _grow(plan: Plan, job: Job, policy: Policy, givers: Givers) -> str:
    """Start one worker, and the ps that it needs; or nothing: why not."""
    mark, more = plan.mark(), job.worker.request
    if needs_ps := _needs_ps(plan, job, policy):
        more = plus(more, job.ps.request)
    refusal = plan.quotas.refusal(job, more)
    if needs_ps and (refusal or not _start_ps(plan, job, givers)):
        plan.undo(mark)
        return refusal or "its share: no room for the ps that one more worker needs"
    if (
        not refusal
        and (node := plan.rooms.best(plan.requests[job.name][Role.WORKER], job.worker.constraint)) is not None
    ):
        plan.start(job.name, Role.WORKER, node)
        return ""
    if _transfer(plan, job, givers):
        return ""
    plan.undo(mark)
    return f"its share: {refusal}" if refusal else "its share: no room without taking from a job with less"


def _needs_ps(plan: Plan, job: Job, policy: Policy) -> bool:
    """Whether one more worker needs one more ps."""
    ps = plan.ps(job.name)
    return policy.ps_wanted(job, plan.workers(job.name) + 1, ps) > ps


def _start_ps(plan: Plan, job: Job, givers: Givers) -> bool:
    """One more ps, if need be instead of a worker of a job that still has the larger share then."""
    free = plan.rooms.best(plan.requests[job.name][Role.PS], job.ps.constraint, is_ps=True)
    if free is None and not givers.any_of(job):
        return False  # No need to look at all nodes.
    return start_all(plan, job.name, Role.PS, 1, lambda other: may_take(plan, other, job))


def may_take(plan: Plan, giver: str, taker: Job) -> bool:
    """Whether a worker may leave one job for another one.

    A queue within its quota takes from one above it, never the other way round. Otherwise the giver must keep at least
    the taker's share. So each transfer lowers what is borrowed or raises the smaller share, and two jobs never take
    from each other in turns.
    """
    if giver == taker.name:
        return False
    if (job := plan.jobs[giver]).queue != taker.queue:
        gives_back, borrows = plan.quotas.is_over(job), plan.quotas.is_over(taker, taker.worker.request)
        if gives_back != borrows:
            return gives_back
    return plan.share(giver, -1) >= plan.share(taker.name, 1)


class Givers:
    """The jobs that have workers above their minimum, by share."""

    def __init__(self, plan: Plan, running: Sequence[Job]) -> None:
        self._plan = plan
        self._has_queues = bool(plan.quotas.queues)
        names = [job.name for job in running if job.name in plan.with_surplus]
        self._heap = [(-plan.share(name), name) for name in names]
        self._after = [(-plan.share(name, -1), name) for name in names]
        """By the share that is left after giving one."""
        heapq.heapify(self._heap)
        heapq.heapify(self._after)

    def note(self, job: str) -> None:
        """The share of a job has changed."""
        if job in self._plan.with_surplus:
            heapq.heappush(self._heap, (-self._plan.share(job), job))
            heapq.heappush(self._after, (-self._plan.share(job, -1), job))

    def _can_give(self, wanted: float) -> bool:
        """Whether a job keeps this share after giving a worker."""
        plan, heap = self._plan, self._after
        while heap:
            share, name = heap[0]
            if name in plan.with_surplus and -share == plan.share(name, -1):
                return -share >= wanted
            heapq.heappop(heap)
            if name in plan.with_surplus:
                heapq.heappush(heap, (-plan.share(name, -1), name))
        return False

    def of(self, taker: Job) -> Generator[str, None, None]:
        """Those that may give the taker a worker, the largest share first."""
        plan, heap = self._plan, self._heap
        found: list[tuple[float, str]] = []
        names: set[str] = set()
        wanted = plan.share(taker.name, 1)
        if not self._has_queues and not self._can_give(wanted):
            return
        try:
            while heap and len(found) < _GIVERS_TRIED:
                share, name = heap[0]
                if name in names or name not in plan.with_surplus or -share != plan.share(name):
                    heapq.heappop(heap)
                    if name not in names and name in plan.with_surplus:
                        heapq.heappush(heap, (-plan.share(name), name))
                    continue
                if -share < wanted and not self._has_queues:
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


def _transfer(plan: Plan, taker: Job, givers: Givers) -> bool:
    """A worker of the job with the largest share leaves for a worker of this one."""
    with closing(givers.of(taker)) as found:
        for giver in found:
            if _take_from(plan, giver, taker):
                givers.note(giver)
                return True
    return False


def _take_from(plan: Plan, giver: str, taker: Job) -> bool:
    request, constraint = plan.requests[taker.name][Role.WORKER], taker.worker.constraint
    mark, own = plan.mark(), plan.requests[giver][Role.WORKER]
    for member in plan.newest(giver):
        if not plan.rooms.allows(constraint, member.node) or not fits(request, add(plan.rooms.free[member.node], own)):
            continue
        plan.drain(member)
        if plan.quotas.is_limiting and plan.quotas.refusal(taker, taker.worker.request):
            plan.undo(mark)
            return False
        plan.start(taker.name, Role.WORKER, member.node)
        return True
    return False
