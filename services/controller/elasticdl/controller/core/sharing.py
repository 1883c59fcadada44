"""What is left after the gangs: by dominant share and weight, to workers that add something."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.packing import FreeRoom, start_all
from elasticdl.controller.core.plan import Member, Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.resources import count, fits, plus


def scale_ps(plan: Plan, running: Sequence[Job], now_s: float, policy: Policy) -> None:
    """Match the ps to the workers that are there. A job's own workers make room for its ps, if need be."""
    for job in running:
        ps = plan.ps(job.name)
        wanted = policy.ps_wanted(job, plan.workers(job.name), ps)
        if wanted > ps and policy.may_grow(job, now_s):
            for _ in range(wanted - ps):
                if not start_all(plan, job.name, Role.PS, 1, _only(job.name)):
                    break
        elif wanted < ps and not plan.leaving[job.name, Role.PS]:
            plan.drain(
                min(plan.members[job.name][Role.PS].values(), key=lambda each: (-gain(plan, each), each.node, each.pod))
            )


def _only(job: str) -> Callable[[str], bool]:
    return lambda other: other == job


def gain(plan: Plan, member: Member) -> int:
    """Places for workers that a node gains when a member leaves."""
    room = plan.potential(member.node)
    return count(plan.filler, plus(room, plan.request(member))) - count(plan.filler, room)


def fill(plan: Plan, running: Sequence[Job], now_s: float, policy: Policy, reasons: dict[str, str]) -> None:
    """Give workers one by one to the job with the smallest share, from free room or from a job with a larger share."""
    room = FreeRoom(plan)
    heap = [(plan.share(job.name), number, job) for number, job in enumerate(running)]
    heapq.heapify(heap)
    while heap:
        share, number, job = heapq.heappop(heap)
        if (now := plan.share(job.name)) != share:  # It gave a worker away meanwhile.
            heapq.heappush(heap, (now, number, job))
            continue
        if stop := _full(plan, job, now_s, policy):
            reasons.setdefault(job.name, f"{plan.workers(job.name)} workers and {plan.ps(job.name)} ps: {stop}")
        elif _grow(plan, job, policy, room, running):
            heapq.heappush(heap, (plan.share(job.name), number, job))
        else:
            reasons.setdefault(job.name, "its share: no room without taking from a job with less")


def _full(plan: Plan, job: Job, now_s: float, policy: Policy) -> str:
    """Why the job takes no further worker; empty if it does."""
    workers = plan.workers(job.name)
    if workers >= job.worker.max:
        return "its maximum"
    if not policy.may_grow(job, now_s):
        return "no growth so soon after a refusal"
    if not policy.worth(job, workers):
        return "one more would not win back its cost"
    if not plan.admitted(job.name) or plan.ps(job.name) < job.ps.min:
        return "its gang is incomplete"
    return ""


def _grow(plan: Plan, job: Job, policy: Policy, room: FreeRoom, running: Sequence[Job]) -> bool:
    """Start one worker, and the ps that it needs; or nothing."""
    mark = plan.mark()
    ps = plan.ps(job.name)
    if policy.ps_wanted(job, plan.workers(job.name) + 1, ps) > ps and not _start_ps(plan, job, room):
        plan.undo(mark)
        return False
    if (node := room.node(job.worker.request)) is not None:
        plan.start(job.name, Role.WORKER, node)
        return True
    transferred = _transfer(plan, job, running, room)
    if not transferred:
        plan.undo(mark)
        room.changed()
    return transferred


def _start_ps(plan: Plan, job: Job, room: FreeRoom) -> bool:
    """One more ps, if need be instead of a worker of a job that still has the larger share then."""
    started = start_all(plan, job.name, Role.PS, 1, lambda other: _has_more(plan, other, job))
    room.changed()
    return started


def _has_more(plan: Plan, giver: str, taker: Job) -> bool:
    """Whether a job has at least the taker's share even after a worker went from it to the taker.

    So each transfer raises the smaller share, and two jobs never take from each other in turns.
    """
    return giver != taker.name and plan.share(giver, -1) >= plan.share(taker.name, 1)


def _transfer(plan: Plan, taker: Job, running: Sequence[Job], room: FreeRoom) -> bool:
    """A worker of the job with the largest share leaves for a worker of this one."""
    givers = [job for job in running if plan.surplus(job.name) and _has_more(plan, job.name, taker)]
    for giver in sorted(givers, key=lambda job: (-plan.share(job.name), job.name)):
        for member in reversed(plan.members[giver.name][Role.WORKER].values()):
            if fits(taker.worker.request, plus(plan.free[member.node], plan.request(member))):
                plan.drain(member)
                plan.start(taker.name, Role.WORKER, member.node)
                if giver.worker.request != taker.worker.request:
                    room.changed()
                return True
    return False
