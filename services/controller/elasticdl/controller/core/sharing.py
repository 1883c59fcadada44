"""What is left after the gangs: by dominant share and weight, to workers that add something."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import closing

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.givers import Givers, may_take, owed
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.moves import gain
from elasticdl.controller.core.packing import start_all
from elasticdl.controller.core.plan import Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.resources import add, fits, plus
from elasticdl.controller.core.targets import pods_text

_REFUSED = "no growth so soon after a refusal"
_NO_PS = "its share: no room for the ps that one more worker needs"


def scale_ps(plan: Plan, running: Iterable[Job], now_s: float, policy: Policy) -> None:
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


Place = tuple[tuple[bool, float], tuple[int, bool, float, str], Job]
"""Whether more would be borrowed, share; place in the order in which jobs are admitted; the job."""


def fill(
    plan: Plan,
    ranked: Sequence[Place],
    resting: dict[str, Place],
    givers: Givers,
    now_s: float,
    policy: Policy,
    reasons: dict[str, str],
) -> None:
    """Give workers one by one to the job with the smallest share, from free room or from a job with a larger share.

    Jobs of queues that stay within their quota come first.

    Args:
        ranked: running jobs that may take a worker, in order.
        resting: those that take no more, for the reasons in ``plan.waits.stops``, until they give some.
    """
    hopeless, has_queues = _Hopeless(plan), bool(plan.quotas.queues)
    touched, stops, trials = plan.touched, plan.waits.stops, plan.waits.trials
    again = _Turns()
    """Those that have got a worker."""
    number, end, woken = 0, len(ranked), plan.waits.woken
    woken.clear()
    while (first := again.first()) or number < end:
        if first and (number == end or first < ranked[number]):
            place = again.pop()
        else:
            place = ranked[number]
            number += 1
        rank, order, job = place
        name = job.name
        if has_queues or name in touched:
            # It gave a worker away meanwhile, or its queue did.
            now = rank_of(plan, job)
            if now != rank:
                again.push((now, order, job))
                continue
        if name in stops:
            reasons.setdefault(name, stops[name])
            continue
        if (trial := trials.get(name)) is not None and (refusal := hopeless.refusal(job, *trial)) is not None:
            reasons.setdefault(name, refusal)
        elif stop := _full(plan, job, now_s, policy):
            text = f"{pods_text(plan.workers(name), plan.ps(name))}: {stop}"
            reasons.setdefault(name, text)
            if stop != _REFUSED:
                plan.waits.stop(name, text)
        elif not (refusal := _grow(plan, job, policy, givers)):
            givers.note(name)
            again.push((rank_of(plan, job), order, job))
        else:
            hopeless.note(job, policy, refusal)
            reasons.setdefault(name, refusal)
        while woken:
            if (former := resting.pop(woken.pop(), None)) is not None:
                again.push(former)


class _Turns:
    """Places in order: a heap of ranks, and a sorted list for each. Many jobs have the same rank."""

    def __init__(self) -> None:
        self._ranks: list[tuple[bool, float]] = []
        self._places: dict[tuple[bool, float], list[Place]] = {}

    def first(self) -> Place | None:
        """The smallest one."""
        return self._places[self._ranks[0]][0] if self._ranks else None

    def push(self, place: Place) -> None:
        """Add one."""
        if (places := self._places.get(place[0])) is not None:
            if places[-1][1] < place[1]:
                places.append(place)  # As nearly always.
            else:
                insort(places, place)
        else:
            self._places[place[0]] = [place]
            heapq.heappush(self._ranks, place[0])

    def pop(self) -> Place:
        """Remove the smallest one."""
        rank = self._ranks[0]
        places = self._places[rank]
        place = places.pop(0)
        if not places:
            del self._places[rank]
            heapq.heappop(self._ranks)
        return place


class _Hopeless:
    """Jobs that can't grow, because one that is alike could not in the same plan.

    Without queues and budgets, a job with a larger share may take from fewer others. With a ps, only jobs with the same
    share are alike: which room a ps takes depends on who yields. Workers that have started meanwhile change nothing for
    one that needs no ps: there is less room, and a job that got one has no more without it than the present job has.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._found: dict[int, tuple[int, int, float, str]] = {}

    def refusal(self, job: Job, trial: int, share: float) -> str | None:
        """Why the job can't grow; None: that is not known."""
        plan = self._plan
        if (found := self._found.get(trial)) is None or job.refused_s is not None:
            return None
        version, opened, least, refusal = found
        if share < least or (version != plan.version and (opened != plan.opened or share <= plan.share(job.name))):
            return None
        return refusal

    def note(self, job: Job, policy: Policy, refusal: str) -> None:
        """A job could not grow."""
        plan = self._plan
        if plan.quotas.is_limiting:
            return
        share, requests = plan.share(job.name, 1), plan.requests[job.name]
        key: tuple[Hashable, ...] = requests[Role.WORKER], job.worker.constraint
        opened = plan.opened
        if _needs_ps(plan, job, policy):
            key, opened = (*key, requests[Role.PS], job.ps.constraint, share), -1
        trial = plan.waits.note_trial(job.name, key, share)
        self._found[trial] = plan.version, opened, share, refusal


def rank_of(plan: Plan, job: Job) -> tuple[bool, float]:
    """Jobs with the smallest rank get the next worker."""
    return bool(job.queue) and plan.quotas.is_over(job, job.worker.request), plan.share(job.name)


def _full(plan: Plan, job: Job, now_s: float, policy: Policy) -> str:
    """Why the job takes no further worker; empty if it does."""
    members = plan.members[job.name]
    workers = len(members[Role.WORKER])
    if workers >= job.worker.max:
        return "its maximum"
    if not policy.may_grow(job, now_s):
        return job.forbidden or _REFUSED
    if not policy.worth(job, workers):
        return "one more would not win back its cost"
    if not members[Role.MASTER] or len(members[Role.PS]) < job.ps.min:
        return "its gang is incomplete"
    return ""


def _grow(plan: Plan, job: Job, policy: Policy, givers: Givers) -> str:
    """Start one worker, and the ps that it needs; or nothing: why not."""
    mark, needs_ps, refusal = plan.mark(), _needs_ps(plan, job, policy), ""
    asked: dict[str, int] = {}
    if plan.quotas.is_limiting:
        more = plus(job.worker.request, job.ps.request) if needs_ps else job.worker.request
        refusal = plan.quotas.refusal(job, more)
    if needs_ps and (refusal or not _start_ps(plan, job, givers, asked)):
        plan.undo(mark)
        return refusal or _NO_PS
    free = None if refusal else plan.rooms.best(plan.requests[job.name][Role.WORKER], job.worker.constraint)
    if free is not None:
        plan.start(job.name, Role.WORKER, free)
    if free is not None or _transfer(plan, job, givers):
        # What the ps takes counts, too.
        if not any(plan.workers(each) < had and _takes_back(plan, each, job) for each, had in asked.items()):
            return ""
        plan.undo(mark)
        return _NO_PS
    plan.undo(mark)
    return f"its share: {refusal}" if refusal else "its share: no room without taking from a job with less"


def _takes_back(plan: Plan, giver: str, taker: Job) -> bool:
    """Whether a job would take a worker back that it gave."""
    by_quota = owed(plan, taker.name, plan.jobs[giver])
    return plan.share(giver) < plan.share(taker.name) if by_quota is None else by_quota


def _needs_ps(plan: Plan, job: Job, policy: Policy) -> bool:
    """Whether one more worker needs one more ps."""
    ps = plan.ps(job.name)
    return policy.ps_wanted(job, plan.workers(job.name) + 1, ps) > ps


def _start_ps(plan: Plan, job: Job, givers: Givers, asked: dict[str, int]) -> bool:
    """One more ps, if need be instead of workers of jobs that still have the larger share then.

    ``asked``: jobs that may give because of their share -> their workers, completed here.
    """
    free = plan.rooms.best(plan.requests[job.name][Role.PS], job.ps.constraint, is_ps=True)
    if free is None and not givers.any_of(job):
        return False  # No need to look at all nodes.

    def yields(other: str) -> bool:
        if owed(plan, other, job) is None:
            asked.setdefault(other, plan.workers(other))
        return may_take(plan, other, job)

    return start_all(plan, job.name, Role.PS, 1, yields)


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
