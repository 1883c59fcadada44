"""The decision: stages in the order of the aims, over one plan that is kept."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Generic, TypeVar

from elasticdl.controller.core.cluster import Cluster, Role, Start
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.plan import ROLES, Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.stages.admission import admit, is_whole, make_room, reclaim, return_stuck
from elasticdl.controller.core.stages.givers import Givers
from elasticdl.controller.core.stages.levels import Key, Levels, Place, Turns
from elasticdl.controller.core.stages.moves import move_ps
from elasticdl.controller.core.stages.sharing import fill, scale_ps
from elasticdl.controller.core.targets import JobTarget, Targets, pods_text
from elasticdl.controller.core.view import Changes, View

Rank = tuple[int, bool, float, str]
"""Place of a job in the order in which jobs are admitted."""
T = TypeVar("T", bound=tuple[Any, ...])
_SORTED_SHARE = 16
"""A list is sorted again after more changes than its length by this number."""


def decide(cluster: Cluster, jobs: Iterable[Job], now_s: float, policy: Policy | None = None) -> Targets:
    """What each job should have, the orders that are missing, and why.

    The aims, in this order: room for pending pods of higher priority; for each job that is admitted its master, its
    minimum of ps and of workers, all or none of them; what is left by dominant share and weight, to workers that add
    something; ps where they cost the fewest workers.

    Args:
        now_s: on the same clock as the times in the jobs.
    """
    return Planner(policy).decide(View().changes_to(cluster, jobs), now_s)


class Planner:
    """Decides again and again, at the cost of what has changed, and always as ``decide`` does from scratch."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.view = View()
        self._policy = policy or Policy()
        self._begin()

    def _begin(self) -> None:
        self._plan: Plan | None = None
        self._order = _Ordered[Rank]()
        """Active jobs in the order in which they are admitted."""
        self._former: dict[str, Rank] = {}
        """Their ranks when the decision began, of those that have another one since."""
        self._began: list[Rank] = []
        """All ranks when the decision began."""
        self._ended: set[str] = set()
        self._unsure: dict[str, set[str]] = {stage: set() for stage in ("limits", "gang", "ps", "share")}
        """Stage -> jobs that it looks at; all others need nothing."""
        self._changed: set[str] = set()
        """Jobs that this decision has looked at."""
        self._last: dict[str, JobTarget] = {}
        self._ordered: set[str] = set()
        """Jobs whose last target has orders."""
        self._levels = Levels()
        """Running jobs by their shares, but for those that take no more workers."""
        self._resting: dict[str, tuple[Key, Place]] = {}
        """Those that take no more."""
        self._resized = 0
        self._givers: Givers | None = None

    def decide(self, changes: Changes, now_s: float) -> Targets:
        """What each job should have once these changes are added to all earlier ones; else as ``decide``."""
        plan, self._plan = self._plan, None
        follows = plan is not None and plan.can_follow(changes)
        self.view.apply(changes)
        if plan is not None and follows:
            plan.follow(changes)
        else:
            self._begin()
            plan = Plan(self.view)
        targets = self._decide(plan, now_s)
        self._plan = plan  # Not after an error: then the next decision begins from scratch.
        return targets

    def _decide(self, plan: Plan, now_s: float) -> Targets:
        reasons: dict[str, str] = {}
        self._look(plan)
        for name in self._ended:
            _release(plan, plan.jobs[name], reasons)
        return_stuck(plan, reasons)
        _return_excess(plan, self._unsure["limits"])
        _return_overbooked(plan)
        make_room(plan, reasons)
        self._look(plan)
        mark, self._began = plan.mark(), list(self._order.items)
        self._former.clear()
        waiting = {name for name in self._unsure["gang"] if name in plan.jobs and not plan.has_pods(name)}
        claimed: set[str] = set()
        """Jobs that would have to leave at once for what other queues claim."""
        while True:
            found = dict(reasons)
            left = waiting & self._share_out(plan, now_s, found, claimed)
            if not left:
                return self._targets(plan, found)
            plan.undo(mark)
            claimed |= left
            self._look(plan)

    def _share_out(self, plan: Plan, now_s: float, reasons: dict[str, str], claimed: Set[str]) -> set[str]:
        """Gangs first, then what is left; returns the jobs that left because of quotas."""
        policy, jobs, unsure = self._policy, plan.jobs, self._unsure
        admit(plan, self._in_order(plan, unsure["gang"]), now_s, policy, reasons, claimed)
        unsure["gang"] = {name for name in unsure["gang"] if name in jobs and not is_whole(plan, jobs[name])}
        left = self._reclaim(plan, reasons, set())
        stuck = {member.job for member in plan.stuck.values()}
        self._look(plan)

        def running(found: Iterable[Job]) -> Iterator[Job]:
            return (job for job in found if plan.admitted(job.name) and job.name not in stuck)

        scale_ps(plan, running(self._in_order(plan, unsure["ps"])), now_s, policy)
        unsure["ps"] = {
            name
            for name in unsure["ps"]
            if name in jobs and policy.ps_wanted(jobs[name], plan.workers(name), plan.ps(name)) != plan.ps(name)
        }
        move_ps(plan, lambda: running(jobs[name] for *_, name in self._began), now_s, policy)
        self._look(plan)
        givers = self._givers = self._givers or Givers(plan)
        givers.begin(unsure["share"], stuck)
        fill(plan, self._turns(plan, stuck), self._resting, givers, now_s, policy, reasons)
        return left | self._reclaim(plan, reasons, stuck)  # Others have grown within their quotas meanwhile.

    def _in_order(self, plan: Plan, names: Iterable[str]) -> list[Job]:
        """The active ones of these jobs, in the order that they had when the decision began."""
        ranks, former = self._order.of, self._former
        found = sorted([former.get(name) or ranks[name] for name in names if name in ranks])
        return [plan.jobs[name] for *_, name in found]

    def _reclaim(self, plan: Plan, reasons: dict[str, str], stuck: Set[str]) -> set[str]:
        if not plan.quotas.queues:
            return set()
        return reclaim(plan, self._in_order(plan, self._order.of.keys() - stuck), reasons)

    def _turns(self, plan: Plan, stuck: Set[str]) -> Turns:
        """The running jobs that may take a worker."""
        changed, waits, ranks, levels, resting = (
            self._unsure["share"],
            plan.waits,
            self._order.of,
            self._levels,
            self._resting,
        )
        if plan.quotas.queues or self._resized != plan.resized:
            changed |= {*ranks, *levels.of}
            waits.rested.update(waits.stops)
            resting.clear()
        self._resized = plan.resized
        places: dict[str, tuple[Key, Place] | None] = {
            name: (levels.key_of(plan, job, self._policy), (ranks[name], job))
            if (job := plan.jobs.get(name)) and name in ranks and plan.admitted(name)
            else None
            for name in changed
        }
        for name in changed:
            resting.pop(name, None)
        for name in waits.rested:
            if name in waits.stops and (place := places.get(name) or levels.of.get(name)):
                resting[name], places[name] = place, None
        waits.rested.clear()
        levels.update(places)
        changed.clear()
        return Turns(levels, stuck)

    def _look(self, plan: Plan) -> None:
        """Note which jobs have changed since the last look."""
        touched, plan.touched = plan.touched, set()
        if not touched:
            return
        for stage in self._unsure:
            self._unsure[stage] |= touched
        self._changed |= touched
        ranks: dict[str, Rank | None] = {}
        for name in touched:
            self._ended.discard(name)
            job = plan.jobs.get(name)
            ranks[name] = None
            if job is None:
                self._last.pop(name, None)
            elif job.finished or job.suspended:
                self._ended.add(name)
            else:
                ranks[name] = (-job.priority, not plan.has_pods(name), job.created_s, name)
            if (before := self._order.of.get(name)) is not None and before != ranks[name]:
                self._former.setdefault(name, before)
        self._order.update(ranks)

    def _targets(self, plan: Plan, reasons: Mapping[str, str]) -> Targets:
        starts: dict[str, list[Start]] = {}
        drains: dict[str, list[str]] = {}
        for start in plan.starts.values():
            starts.setdefault(start.job, []).append(start)
        for pod, owner in plan.drains.items():
            drains.setdefault(owner, []).append(pod)
        last, found = self._last, []
        changed = self._changed | plan.touched | self._ordered
        self._changed, self._ordered, stops = set(), {*starts, *drains}, plan.waits.stops
        for name in [*[rank[3] for rank in self._began], *sorted(self._ended)]:
            reason, known = reasons.get(name) or stops.get(name), last.get(name)
            if known is None or name in changed or reason != known.reason:
                known = last[name] = _target(plan, name, reason, starts.get(name, ()), drains.get(name, ()))
            found.append(known)
        return Targets(jobs=tuple(found))


def _release(plan: Plan, job: Job, reasons: dict[str, str]) -> None:
    members = [member for role in ROLES for member in plan.by_name(job.name, role)]
    for member in members:
        plan.drain(member)
    left = len(members) + sum(plan.leaving[job.name, role] for role in ROLES)
    what = "finished" if job.finished else "suspended by its owner"
    reasons[job.name] = f"{what}; {left} pods still hold room" if left else what


def _return_excess(plan: Plan, jobs: set[str]) -> None:
    """Pods above the maximum leave: a user has lowered it, or has asked for a number."""
    for name in sorted(jobs):
        job = plan.jobs.get(name)
        if job is None:
            continue
        if (excess := plan.workers(name) - job.worker.max) > 0:
            for member in plan.newest(name)[:excess]:
                plan.drain(member)
        if (excess := plan.ps(name) - job.ps.max) > 0:
            members = sorted(plan.members[name][Role.PS].values(), key=lambda each: (len(each.pod), each.pod))
            for member in members[-excess:]:
                plan.drain(member)
    jobs.clear()


def _return_overbooked(plan: Plan) -> None:
    """Another pod took the room that was meant for a pod of a job: that one goes elsewhere."""
    for node in sorted(plan.rooms.overbooked):
        waiting = sorted(plan.waiting.get(node, {}).values(), key=lambda member: (ROLES.index(member.role), member.pod))
        while waiting and node in plan.rooms.overbooked:
            member = waiting.pop()
            if member.pod in plan.members[member.job][member.role]:
                plan.drain(member)
    for node, members in sorted(plan.waiting.items()):
        for member in sorted(members.values(), key=lambda member: member.pod):
            # A ps leaves once those that replace it have started, so none of these may wait for its room.
            if (
                member.role is Role.PS
                and min(plan.rooms.room(node, is_ps=True), default=0) < 0
                and member.pod in plan.members[member.job][Role.PS]
                and plan.leaves(member.job, Role.PS, node)
            ):
                plan.drain(member)


def _target(plan: Plan, name: str, reason: str | None, starts: Sequence[Start], drains: Sequence[str]) -> JobTarget:
    workers, ps = plan.workers(name), plan.ps(name)
    return JobTarget(
        job=name,
        admitted=plan.admitted(name),
        workers=workers,
        ps=ps,
        reason=reason or pods_text(workers, ps),
        starts=tuple(starts),
        drains=tuple(drains),
    )


class _Ordered(Generic[T]):
    """Named items in their order, kept between decisions, as most stay where they are. No two are equal."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self.of: dict[str, T] = {}

    def update(self, changes: Mapping[str, T | None]) -> None:
        """Items come, change and go (None)."""
        items, of = self.items, self.of
        is_sorted_again = len(changes) * _SORTED_SHARE > len(items)
        for name, item in changes.items():
            before = of.pop(name, None)
            if item is not None:
                of[name] = item
            if before == item or is_sorted_again:
                continue
            if before is not None:
                del items[bisect_left(items, before)]
            if item is not None:
                insort(items, item)
        if is_sorted_again:
            self.items = sorted(of.values())
