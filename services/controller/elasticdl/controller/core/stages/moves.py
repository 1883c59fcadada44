"""Ps move to nodes where they cost no worker, because other pods came or went since they were placed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from elasticdl.controller.core.cluster import Role, Start
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.plan import Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.resources import Amounts, add, subtract


def move_ps(plan: Plan, running: Callable[[], Iterable[Job]], now_s: float, policy: Policy) -> None:
    """Move ps if a node gains a place for a worker and no other node loses one. A move starts the new ps first."""
    if not any(plan.workers(job.name) < job.worker.max for job in running()) or not (movable := _movable(plan)):
        return
    for job in running():
        if not any(job.name in jobs for jobs in movable):
            continue
        if plan.leaving[job.name, Role.PS] or not policy.may_grow(job, now_s):
            continue
        moved = 0
        for member in plan.by_name(job.name, Role.PS):
            if moved < policy.ps_moves and member.pod not in plan.starts and _move(plan, job, member):
                moved += 1
        if moved and not (movable := _movable(plan)):
            break


def _movable(plan: Plan) -> list[Collection[str]]:
    """Jobs with ps that cost their node a place for a worker, if there are better nodes; each has equal ps."""
    found = plan.movable
    for node in plan.rooms.rebased:
        for alike, job in plan.costly_on.pop(node, ()):
            nodes = found[alike][job]
            nodes.discard(node)
            if not nodes:
                del found[alike][job]
            if not found[alike]:
                del found[alike]
        for name in _with_gain(plan, node):
            alike = plan.requests[name][Role.PS], plan.jobs[name].ps.constraint
            found.setdefault(alike, {}).setdefault(name, set()).add(node)
            plan.costly_on.setdefault(node, set()).add((alike, name))
    plan.rooms.rebased.clear()
    return [jobs for alike, jobs in found.items() if _target(plan, *alike) is not None]


def _with_gain(plan: Plan, node: str) -> set[str]:
    """Jobs with ps that cost a node a place for a worker."""
    if not (members := plan.ps_on.get(node)):
        return set()
    rooms, room = plan.rooms, plan.rooms.potential[node]
    places = rooms.places(room)
    return {each.job for each in members.values() if rooms.places(add(room, plan.request(each))) > places}


def gain(plan: Plan, member: Start) -> int:
    """Places for workers that a node gains when a member leaves."""
    rooms, room = plan.rooms, plan.rooms.potential[member.node]
    return rooms.places(add(room, plan.request(member))) - rooms.places(room)


def _target(plan: Plan, request: Amounts, constraint: Constraint) -> str | None:
    """A node that has room for one more ps, and then as many places for workers as now."""
    node = plan.rooms.best(request, constraint, is_ps=True)
    if node is None:
        return None
    rooms, there = plan.rooms, plan.rooms.potential[node]
    return node if rooms.places(subtract(there, request)) >= rooms.places(there) else None


def _move(plan: Plan, job: Job, member: Start) -> bool:
    if gain(plan, member) < 1:
        return False
    node = _target(plan, plan.request(member), job.ps.constraint)
    if node is None or node == member.node:
        return False
    plan.start(member.job, Role.PS, node)
    plan.drain(member)
    return True
