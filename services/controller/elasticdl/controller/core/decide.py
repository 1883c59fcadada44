"""The decision: stages in the order of the aims, over one plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elasticdl.controller.core.admission import admit, make_room, reclaim, return_stuck
from elasticdl.controller.core.cluster import Cluster, Role
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.moves import move_ps
from elasticdl.controller.core.plan import Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.sharing import fill, scale_ps
from elasticdl.controller.core.targets import JobTarget, Targets


def decide(cluster: Cluster, jobs: Iterable[Job], now_s: float, policy: Policy | None = None) -> Targets:
    """What each job should have, the orders that are missing, and why.

    The aims, in this order: room for pending pods of higher priority; for each job that is admitted its master, its
    minimum of ps and of workers, all or none of them; what is left by dominant share and weight, to workers that add
    something; ps where they cost the fewest workers.

    Args:
        now_s: on the same clock as the times in the jobs.
    """
    policy = policy or Policy()
    plan = Plan(cluster, jobs)
    reasons: dict[str, str] = {}
    for job in plan.jobs.values():
        if job.finished or job.suspended:
            _release(plan, job, reasons)
    return_stuck(plan, reasons)
    _return_excess(plan)
    _return_overbooked(plan)
    make_room(plan, cluster, reasons)
    order = sorted(
        (job for job in plan.jobs.values() if not (job.finished or job.suspended)),
        key=lambda job: (-job.priority, not plan.has_pods(job.name), job.created_s, job.name),
    )
    admit(plan, order, now_s, policy, reasons)
    stuck = {member.job for member in plan.stuck}
    running = [job for job in order if plan.admitted(job.name)]
    reclaim(plan, running, reasons)
    running = [job for job in running if plan.admitted(job.name) and job.name not in stuck]
    scale_ps(plan, running, now_s, policy)
    move_ps(plan, running, now_s, policy)
    fill(plan, running, now_s, policy, reasons)
    ended = [job for job in plan.jobs.values() if job.finished or job.suspended]
    return Targets(jobs=tuple(_target(plan, job, reasons) for job in [*order, *ended]))


def _release(plan: Plan, job: Job, reasons: dict[str, str]) -> None:
    members = [member for role in Role for member in plan.members[job.name][role].values()]
    for member in members:
        plan.drain(member)
    left = len(members) + sum(plan.leaving[job.name, role] for role in Role)
    what = "finished" if job.finished else "suspended by its owner"
    reasons[job.name] = f"{what}; {left} pods still hold room" if left else what


def _return_excess(plan: Plan) -> None:
    """Pods above the maximum leave: a user has lowered it, or has asked for a number."""
    for job in plan.jobs.values():
        if (excess := plan.workers(job.name) - job.worker.max) > 0:
            for member in plan.newest(job.name)[:excess]:
                plan.drain(member)
        if (excess := plan.ps(job.name) - job.ps.max) > 0:
            members = sorted(plan.members[job.name][Role.PS].values(), key=lambda each: (len(each.pod), each.pod))
            for member in members[-excess:]:
                plan.drain(member)


def _return_overbooked(plan: Plan) -> None:
    """Another pod took the room that was meant for a pod of a job: that one goes elsewhere."""
    roles = list(Role)
    for node, members in sorted(plan.waiting.items()):
        waiting = sorted(members, key=lambda member: (roles.index(member.role), member.pod))
        while waiting and min(plan.rooms.free[node], default=0) < 0:
            member = waiting.pop()
            if member.pod in plan.members[member.job][member.role]:
                plan.drain(member)


def _target(plan: Plan, job: Job, reasons: Mapping[str, str]) -> JobTarget:
    workers, ps = plan.workers(job.name), plan.ps(job.name)
    return JobTarget(
        job=job.name,
        admitted=plan.admitted(job.name),
        workers=workers,
        ps=ps,
        reason=reasons.get(job.name) or f"{workers} workers and {ps} ps",
        starts=tuple(start for start in plan.starts.values() if start.job == job.name),
        drains=tuple(pod for pod, owner in plan.drains.items() if owner == job.name),
    )
