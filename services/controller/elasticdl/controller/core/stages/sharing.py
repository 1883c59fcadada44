"""What is left after the gangs: by dominant share and weight, to workers that add something."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import closing

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.plan import Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.resources import add, fits, plus
from elasticdl.controller.core.stages.givers import Givers, may_take, owed
from elasticdl.controller.core.stages.levels import Key, Level, Place, Turns, key_of
from elasticdl.controller.core.stages.moves import gain
from elasticdl.controller.core.stages.packing import free_node, start_all
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


def fill(
    plan: Plan,
    turns: Turns,
    resting: dict[str, tuple[Key, Place]],
    givers: Givers,
    now_s: float,
    policy: Policy,
    reasons: dict[str, str],
) -> None:
    """Give workers one by one to the jobs with the smallest share, from free room or from a job with a larger share.

    Jobs of queues that stay within their quota come first.

    Args:
        turns: running jobs that may take a worker.
        resting: those that take no more, for the reasons in ``plan.waits.stops``, until they give some.
    """
    hopeless, woken, found = _Hopeless(plan), plan.waits.woken, dict[str, str]()
    woken.clear()
    plan.shrunk.clear()
    while (level := turns.pop()) is not None:
        if _have_left(plan, level, turns):
            continue
        places = level.places
        if stop := _full(plan, places[0][1], now_s, policy):
            text = f"{pods_text(plan.workers(places[0][1].name), plan.ps(places[0][1].name))}: {stop}"
            for _, job in places:
                found.setdefault(job.name, text)
                if stop != _REFUSED:
                    plan.waits.stop(job.name, text)
            continue
        grown, refusal = _grow_all(plan, places, policy, givers, hopeless)
        if grown:
            turns.push(key_of(plan, places[0][1], level.key[1]), places[:grown])
        found.update({job.name: refusal for _, job in places[grown:] if job.name not in found})
        while woken:
            if (former := resting.pop(woken.pop(), None)) is not None:
                turns.push(former[0], [former[1]])
    reasons.update({name: reason for name, reason in found.items() if name not in reasons})


def _have_left(plan: Plan, level: Level, turns: Turns) -> bool:
    """Whether jobs have left a level, because they gave a worker away, or because of their queue; all get new turns."""
    shrunk, places = plan.shrunk, level.places
    if not plan.quotas.queues and (not shrunk or shrunk.isdisjoint([job.name for _, job in places])):
        return False
    keys = [key_of(plan, job, level.key[1]) for _, job in places]
    shrunk.difference_update([job.name for _, job in places])
    if all(key == level.key for key in keys):
        return False
    for key, place in zip(keys, places, strict=True):
        turns.push(key, [place])
    return True


def _grow_all(plan: Plan, places: list[Place], policy: Policy, givers: Givers, hopeless: _Hopeless) -> tuple[int, str]:
    """Give jobs that are alike a worker each; returns how many got one, and why the next one did not."""
    first = places[0][1]
    needs_ps, grown = _needs_ps(plan, first, policy), 0
    if refusal := hopeless.refusal(first, needs_ps):
        return 0, refusal
    if not needs_ps and not plan.quotas.is_limiting:
        jobs = [job.name for _, job in places]
        grown = plan.start_workers(jobs)
        givers.note(*jobs[:grown])
    while grown < len(places):
        job = places[grown][1]
        if refusal := _grow(plan, job, needs_ps, givers):
            hopeless.note(job, needs_ps, refusal)
            return grown, refusal
        givers.note(job.name)
        grown += 1
    return grown, ""


class _Hopeless:
    """Jobs that can't grow, because one that is alike could not in the same plan.

    Without queues and budgets, a job with a larger share may take from fewer others. With a ps, only jobs with the same
    share are alike: which room a ps takes depends on who yields. Workers that have started meanwhile change nothing for
    one that needs no ps: there is less room, and a job that got one has no more without it than the present job has.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._found: dict[tuple[Hashable, ...], tuple[int, int, float, str]] = {}

    def _key(self, job: Job, needs_ps: bool) -> tuple[Hashable, ...]:
        requests = self._plan.requests[job.name]
        key: tuple[Hashable, ...] = requests[Role.WORKER], job.worker.constraint
        if needs_ps:
            key = (*key, requests[Role.PS], job.ps.constraint, self._plan.share(job.name, 1))
        return key

    def refusal(self, job: Job, needs_ps: bool) -> str:
        """Why the job can't grow; empty: that is not known."""
        plan = self._plan
        if not self._found or (found := self._found.get(self._key(job, needs_ps))) is None:
            return ""
        version, opened, least, refusal = found
        if plan.share(job.name, 1) < least:
            return ""
        if version != plan.version and (opened != plan.opened or least <= plan.share(job.name)):
            return ""
        return refusal

    def note(self, job: Job, needs_ps: bool, refusal: str) -> None:
        """A job could not grow."""
        plan = self._plan
        if plan.quotas.is_limiting:
            return
        opened = -1 if needs_ps else plan.opened
        self._found[self._key(job, needs_ps)] = plan.version, opened, plan.share(job.name, 1), refusal


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


def _grow(plan: Plan, job: Job, needs_ps: bool, givers: Givers) -> str:
    """Start one worker, and the ps that it needs; or nothing: why not."""
    mark, refusal = plan.mark(), ""
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
    if (node := free_node(plan, job.name, Role.PS)) is not None:
        plan.start(job.name, Role.PS, node)
        return True
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
