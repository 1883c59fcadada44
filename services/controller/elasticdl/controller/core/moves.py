"""Ps move to nodes where they cost no worker, because other pods came or went since they were placed."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.entries import Member
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.plan import Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.resources import Amounts, add, count, subtract


def move_ps(plan: Plan, running: Sequence[Job], now_s: float, policy: Policy) -> None:
    """Move ps if a node gains a place for a worker and no other node loses one. A move starts the new ps first."""
    if not any(plan.workers(job.name) < job.worker.max for job in running):
        return
    movable = _movable(plan)
    hopeless: dict[tuple[Amounts, Constraint], int] = {}
    """Pods without a better node -> the version of the plan for which that is so."""
    for job in running:
        if job.name not in movable:
            continue
        alike = plan.requests[job.name][Role.PS], job.ps.constraint
        if hopeless.get(alike) == plan.version:
            continue
        if plan.leaving[job.name, Role.PS] or not policy.may_grow(job, now_s):
            continue
        if _target(plan, job) is None:
            hopeless[alike] = plan.version
            continue
        moved = 0
        for member in plan.by_name(job.name, Role.PS):
            if moved < policy.ps_moves and member.pod not in plan.starts and _move(plan, job, member):
                moved += 1
        if moved:
            movable = _movable(plan)


def _movable(plan: Plan) -> dict[str, set[str]]:
    """Jobs with ps that cost their node a place for a worker -> these nodes."""
    found = plan.movable
    for node in plan.rooms.rebased:
        for job in plan.costly_on.pop(node, ()):
            found[job].discard(node)
            if not found[job]:
                del found[job]
        if costly := {member.job for member in plan.ps_on.get(node, {}).values() if gain(plan, member) >= 1}:
            plan.costly_on[node] = costly
            for job in costly:
                found.setdefault(job, set()).add(node)
    plan.rooms.rebased.clear()
    return found


def gain(plan: Plan, member: Member) -> int:
    """Places for workers that a node gains when a member leaves."""
    room, worker = plan.rooms.potential[member.node], plan.rooms.worker
    return count(worker, add(room, plan.request(member))) - count(worker, room)


def _target(plan: Plan, job: Job) -> str | None:
    """A node that has room for one more ps of the job, and then as many places for workers as now."""
    request = plan.requests[job.name][Role.PS]
    node = plan.rooms.best(request, job.ps.constraint, is_ps=True)
    if node is None:
        return None
    there, worker = plan.rooms.potential[node], plan.rooms.worker
    return node if count(worker, subtract(there, request)) >= count(worker, there) else None


def _move(plan: Plan, job: Job, member: Member) -> bool:
    if gain(plan, member) < 1:
        return False
    node = _target(plan, job)
    if node is None or node == member.node:
        return False
    plan.start(member.job, Role.PS, node)
    plan.drain(member)
    return True
