"""Ps move to nodes where they cost no worker, because other pods came or went since they were placed."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.packing import FreeRoom
from elasticdl.controller.core.plan import Member, Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.resources import count, plus
from elasticdl.controller.core.sharing import gain


def move_ps(plan: Plan, running: Sequence[Job], now_s: float, policy: Policy) -> None:
    """Move ps if a node gains a place for a worker and no other node loses one. A move starts the new ps first."""
    if not any(plan.workers(job.name) < job.worker.max for job in running):
        return
    room = FreeRoom(plan)
    for job in running:
        if plan.leaving[job.name, Role.PS] or not policy.may_grow(job, now_s):
            continue
        moved = 0
        for member in list(plan.members[job.name][Role.PS].values()):
            if moved < policy.ps_moves and member.pod not in plan.starts and _move(plan, member, room):
                moved += 1


def _move(plan: Plan, member: Member, room: FreeRoom) -> bool:
    if gain(plan, member) < 1:
        return False
    request = plan.request(member)
    node = room.node(request, is_ps=True)
    if node is None or node == member.node:
        return False
    there = plan.potential(node)
    if count(plan.filler, plus(there, request, -1)) < count(plan.filler, there):
        return False
    plan.start(member.job, Role.PS, node)
    plan.drain(member)
    return True
