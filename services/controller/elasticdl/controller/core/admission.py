"""Room for others first, then each job's gang: its master, its minimum of ps and its minimum of workers, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from elasticdl.controller.core.cluster import Cluster, Role
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.packing import Wish, place, start_all
from elasticdl.controller.core.plan import Plan, pending_services
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.resources import Resources, fits, plus


def return_stuck(plan: Plan, reasons: dict[str, str]) -> None:
    """Pods that can't start return their room; a job that can't start without them returns all."""
    for member in plan.stuck:
        if member.pod not in plan.members[member.job][member.role]:
            continue
        plan.drain(member)
        job = plan.jobs[member.job]
        reasons[job.name] = f"{member.pod} can't start and returns its room"
        least = {Role.MASTER: 1, Role.PS: job.ps.min, Role.WORKER: job.workers_min}[member.role]
        if len(plan.members[job.name][member.role]) < least:
            _remove_job(plan, job.name)


def make_room(plan: Plan, cluster: Cluster, reasons: dict[str, str]) -> None:
    """Keep or make room for pending pods of others with a higher priority than the jobs that give it."""
    waiting = pending_services(cluster.pods, plan.jobs.values())
    start = 0
    while start < len(waiting):
        first, end = waiting[start], start
        while end < len(waiting) and (waiting[end].request, waiting[end].priority) == (first.request, first.priority):
            end += 1
        if not _reserve(plan, first.request, end - start, first.priority):
            attempt = partial(_reserve, plan, first.request, 1, first.priority)
            for _ in range(end - start):
                if not _with_leavers(plan, attempt, first.priority, first.name, reasons):
                    break
        start = end


def _reserve(plan: Plan, request: Resources, pods: int, priority: int) -> bool:
    def yields(job: str) -> bool:
        return plan.jobs[job].priority < priority

    return place(plan, Wish(request=request, pods=pods), yields, lambda node: plan.reserve(node, request))


def _with_leavers(plan: Plan, attempt: Callable[[], bool], priority: int, whom: str, reasons: dict[str, str]) -> bool:
    """Try to place something; while workers above the minimum are not enough, whole jobs of lower priority leave."""
    mark, left = plan.mark(), []
    while not attempt():
        lower = _lowest(plan, priority)
        if lower is None:
            plan.undo(mark)
            return False
        _remove_job(plan, lower.name)
        left.append(lower.name)
    reasons.update(dict.fromkeys(left, f"gives all its room to {whom} (priority {priority})"))
    return True


def _lowest(plan: Plan, priority: int) -> Job | None:
    """The running job that leaves first for something of this priority."""
    running = [job for job in plan.jobs.values() if plan.admitted(job.name) and job.priority < priority]
    return min(running, key=lambda job: (job.priority, -job.created_s, job.name), default=None)


def _remove_job(plan: Plan, job: str) -> None:
    for role in (Role.WORKER, Role.PS, Role.MASTER):
        for member in list(plan.members[job][role].values()):
            plan.drain(member)


def admit(plan: Plan, order: Iterable[Job], now_s: float, policy: Policy, reasons: dict[str, str]) -> None:
    """Complete the gangs of the jobs, in this order. No job passes one that waits: later ones would starve it."""
    first = ""
    for job in order:
        if job.name in reasons and not plan.admitted(job.name):
            continue  # It has just given its room away.
        if not _ready(plan, job, now_s, policy, reasons):
            continue
        if first and not plan.admitted(job.name):
            reasons[job.name] = f"waits behind {first}"
        elif not _with_leavers(plan, partial(_start_gang, plan, job), job.priority, f"job {job.name}", reasons):
            _remove_job(plan, job.name)  # What is left of a gang would hold room and train nothing.
            reasons[job.name] = f"waits for room: {_gang(job)} at once"
            first = first or job.name


def _ready(plan: Plan, job: Job, now_s: float, policy: Policy, reasons: dict[str, str]) -> bool:
    """Whether the job may get pods now, and could ever hold its gang."""
    if not policy.may_grow(job, now_s):
        reasons.setdefault(job.name, "waits, because pods could not start or were refused")
        return False
    if (lacking := _never_fits(plan, job)) and not plan.admitted(job.name):
        reasons[job.name] = f"{lacking}: {_gang(job)} needed"
        return False
    return True


def _start_gang(plan: Plan, job: Job) -> bool:
    """Start what the gang lacks, or nothing. The ps come first, because they are hardest to place."""
    mark, members = plan.mark(), plan.members[job.name]
    for role, least in ((Role.PS, job.ps.min), (Role.MASTER, 1), (Role.WORKER, job.workers_min)):
        if not start_all(plan, job.name, role, least - len(members[role]), _all_yield):
            plan.undo(mark)
            return False
    return True


def _all_yield(job: str) -> bool:
    """A gang comes before the surplus of every job, its own included."""
    del job
    return True


def _gang(job: Job) -> str:
    return f"1 master, {job.ps.min} ps and {job.workers_min} workers"


def _never_fits(plan: Plan, job: Job) -> str:
    """Why the job could not even have an empty cluster; empty if it could."""
    needed: Resources = {}
    for role, pods in ((Role.MASTER, 1), (Role.PS, job.ps.min), (Role.WORKER, job.workers_min)):
        request = job.group(role).request
        needed = plus(needed, request, pods)
        if pods and not any(fits(request, node.allocatable) for node in plan.cluster_nodes):
            return f"no node is large enough for a {role.value}"
    return "" if fits(needed, plan.total) else "the cluster is too small"
