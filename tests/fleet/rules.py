"""What must be true of a fleet at each moment, and once nothing happens any more."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations

from tests.fleet.world import POLICY, Fleet, has_place

from elasticdl.controller.core import Job, Phase, Policy, Queue, Role
from elasticdl.controller.core.queues import exceeded
from elasticdl.controller.core.resources import has_room, plus
from elasticdl.controller.sim.world import SimPod

Rooms = Mapping[str, Mapping[str, int]]
"""Node -> what is free there."""
Jobs = Mapping[str, Job]
Pods = Mapping[str, Mapping[Role, list[SimPod]]]
"""Job -> its pods."""
WORTH, PS_WANTED = Policy.worth, Policy.ps_wanted
"""As they are without mutations."""
REST_S = 100.0
"""Seconds after the last change within which all orders are done."""


STUCK_S = 45.0
"""Seconds after which a pod that can't start must have returned its room."""


def at_each_moment(fleet: Fleet) -> list[str]:
    """No node holds too much, no pod stands where it may not, no job has more pods than it may."""
    world, problems = fleet.world, []
    for name, room in world.free.items():
        if min(room.values()) < 0:
            problems.append(f"{name} holds too much: {room}")
    jobs = fleet.jobs_by_name()
    for pod in world.pods.values():
        if pod.phase is Phase.STUCK and world.now_s > fleet.stuck_s.get(pod.name, world.now_s) + STUCK_S:
            problems.append(f"{pod.name} can't start and keeps its room")
        job = jobs.get(pod.job)
        if job and pod.role and pod.node in world.nodes:
            constraint = job.group(pod.role).constraint
            if not constraint.allows(pod.node, world.node_labels.get(pod.node, {}), ()):
                problems.append(f"{pod.name} stands on {pod.node}, where it may not")
    for name, found in world.jobs.items():
        staying = Counter(pod.role for pod in found.pods.values() if pod.phase is not Phase.LEAVING)
        staying.update(start.role for start in found.ordered.values())
        spec, most = found.spec, fleet.most.get(name, 0)
        if (
            staying[Role.MASTER] > 1
            or staying[Role.PS] > spec.ps.max
            or staying[Role.WORKER] > max(most, spec.worker.max)
        ):
            problems.append(f"{name} has too many pods: {dict(staying)}")
    return problems


def at_rest(fleet: Fleet) -> list[str]:
    """Once faults and changes have ended: no job waits for room that is there, and shares are even."""
    world = fleet.world
    jobs = {job.name: job for job in fleet.jobs() if not job.finished}
    pods: dict[str, dict[Role, list[SimPod]]] = {name: defaultdict(list) for name in jobs}
    for pod in world.pods.values():
        if pod.job in jobs and pod.role:
            pods[pod.job][pod.role].append(pod)
    rooms = {name: world.free_of(name) for name in world.nodes}
    problems = []
    ends = [job.finished_s for job in world.jobs.values() if job.finished_s is not None]
    if fleet.last_orders_s > max(ends, default=0.0) + REST_S and world.now_s - fleet.last_orders_s < REST_S:
        problems.append("decisions do not come to rest")
    if world.now_s - max(ends, default=0.0) < REST_S:
        return problems  # What a job has returned is still being shared out.
    problems += [
        f"{pod.name} is {pod.phase.value} at rest" for pod in world.pods.values() if pod.job and not _rests(pod)
    ]
    for name, found in world.jobs.items():
        if found.finished_s is not None and found.pods:
            problems.append(f"{name} has finished and keeps {sorted(found.pods)}")
    problems += _services(fleet, rooms)
    waiting = [job for job in jobs.values() if not (job.suspended or any(pods[job.name].values()))]
    # The others may wait behind the first one.
    head = min(waiting, key=lambda job: (-job.priority, job.created_s, job.name), default=None)
    for job in jobs.values():
        problems += _wholeness(fleet, job, job is head, rooms, jobs, pods)
    problems += _claims(fleet, waiting, jobs, pods, rooms)
    problems += _even(fleet, jobs, pods)
    problems += _quotas(fleet, jobs, pods)
    problems += _priorities(fleet, waiting, rooms, jobs)
    return problems


def _wholeness(fleet: Fleet, job: Job, is_head: bool, rooms: Rooms, jobs: Jobs, pods: Pods) -> list[str]:
    """A job has its whole gang or nothing, and no less than it could have."""
    own = pods[job.name]
    problems: list[str] = []
    if job.suspended or job.name in fleet.broken:
        if any(own.values()) and job.suspended:
            problems.append(f"{job.name} is suspended and has pods")
        return problems
    whole = (
        len(own[Role.MASTER]) == 1
        and job.ps.min <= len(own[Role.PS]) <= job.ps.max
        and job.workers_min <= len(own[Role.WORKER]) <= job.worker.max
    )
    if any(own.values()) and not whole:
        problems.append(f"{job.name} has a part of its gang: {_numbers(own)}")
    if is_head and _gang_fits(fleet, job, rooms, jobs, pods):
        problems.append(f"{job.name} waits for room that is free")
    if whole:
        problems += _could_grow(fleet, job, own, rooms, jobs, pods)
    return problems


def _rests(pod: SimPod) -> bool:
    return pod.phase in (Phase.RUNNING,)


def _numbers(own: Mapping[Role, list[SimPod]]) -> dict[str, int]:
    return {role.value: len(pods) for role, pods in own.items()}


def _may(fleet: Fleet, job: Job, role: Role) -> Callable[[str], bool]:
    constraint = job.group(role).constraint
    return lambda name: constraint.allows(name, fleet.world.node_labels.get(name, {}), ())


def _services(fleet: Fleet, rooms: Rooms) -> list[str]:
    """A service of the highest priority waits only if all workers together could not give it room."""
    world, problems = fleet.world, []
    for name, pods in world.services.items():
        waiting = [pod for pod in pods if pod.phase is Phase.PENDING]
        if not waiting:
            continue
        possible = {node: dict(room) for node, room in rooms.items()}
        for pod in world.pods.values():
            if pod.job and pod.bound and pod.priority < waiting[0].priority and pod.node in possible:
                possible[pod.node] = plus(possible[pod.node], pod.request)
        if has_place(dict(waiting[0].request), possible, lambda _: True):
            problems.append(f"{len(waiting)} pods of {name} wait for room that jobs of lower priority have")
    return problems


def _queue_allows(fleet: Fleet, job: Job, more: dict[str, int], jobs: Jobs, pods: Pods) -> bool:
    """Whether quotas allow more pods of a job."""
    if not job.queue or not jobs:
        return True
    used = _used(jobs, pods)
    queue = next((each for each in fleet.queues if each.name == job.queue), None)
    if queue is None:
        return False
    own = plus(used[job.queue], more)
    if has_room(own, queue.quota):
        return True
    if queue.limit is not None and not has_room(own, queue.limit):
        return False
    total: dict[str, int] = dict(more)
    quotas: dict[str, int] = {}
    for each in fleet.queues:
        total, quotas = plus(total, used[each.name]), plus(quotas, each.quota)
    return has_room(total, quotas)


def _used(jobs: Jobs, pods: Pods) -> dict[str, dict[str, int]]:
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for name, roles in pods.items():
        for role, members in roles.items():
            used[jobs[name].queue] = plus(used[jobs[name].queue], jobs[name].group(role).request, len(members))
    return used


def _gang_fits(fleet: Fleet, job: Job, rooms: Rooms, jobs: Jobs, pods: Pods) -> bool:
    """Whether the gang has room now, as it is found by the simplest rule."""
    left = {name: dict(room) for name, room in rooms.items()}
    for role, number in _sizes(job).items():
        request = dict(job.group(role).request)
        for _ in range(number):
            if not (node := has_place(request, left, _may(fleet, job, role))):
                return False
            left[node] = plus(left[node], request, -1)
    return _queue_allows(fleet, job, _gang(job), jobs, pods)


def _sizes(job: Job) -> Mapping[Role, int]:
    return {Role.PS: job.ps.min, Role.MASTER: 1, Role.WORKER: job.workers_min}


def _gang(job: Job) -> dict[str, int]:
    """What a gang needs."""
    needed: dict[str, int] = {}
    for role, number in _sizes(job).items():
        needed = plus(needed, job.group(role).request, number)
    return needed


def _could_grow(
    fleet: Fleet, job: Job, own: Mapping[Role, list[SimPod]], rooms: Rooms, jobs: Jobs, pods: Pods
) -> list[str]:
    """One more worker is worth it and has room, and no more ps are needed for it."""
    workers, ps = len(own[Role.WORKER]), len(own[Role.PS])
    if workers > 1 and job.worker.max > job.workers_min and not WORTH(POLICY, job, workers - 1):
        if workers > job.workers_min and job.curve.gain(workers - 1) < POLICY.gain_min:
            return [f"{job.name} has a worker that adds nothing"]
        return []
    if workers >= job.worker.max or not WORTH(POLICY, job, workers) or PS_WANTED(POLICY, job, workers + 1, ps) > ps:
        return []
    request = dict(job.worker.request)
    node = has_place(request, rooms, _may(fleet, job, Role.WORKER))
    if node and _queue_allows(fleet, job, request, jobs, pods):
        return [f"{job.name} has {workers} workers of {job.worker.max}, and {node} has room for one more"]
    return []


def _share(fleet: Fleet, job: Job, pods: Pods, more: int) -> float:
    """The dominant share by weight, with more workers."""
    taken: dict[str, int] = plus({}, job.worker.request, more)
    for role, members in pods[job.name].items():
        taken = plus(taken, job.group(role).request, len(members))
    total: dict[str, int] = {}
    for amounts in fleet.world.nodes.values():
        total = plus(total, amounts)
    return max(taken.get(name, 0) / amount for name, amount in total.items() if amount) / job.weight


def _even(fleet: Fleet, jobs: Jobs, pods: Pods) -> list[str]:
    """Of two jobs that are alike, none has two workers more than the other that could have one of them."""
    problems = []
    for poor in jobs.values():
        for rich in jobs.values():
            if (
                poor.worker.request == rich.worker.request
                and poor.worker.constraint == rich.worker.constraint
                and poor.queue == rich.queue
                and pods[poor.name][Role.MASTER]
                and pods[rich.name][Role.MASTER]
                and not {poor.name, rich.name} & fleet.broken
            ):
                few, many = len(pods[poor.name][Role.WORKER]), len(pods[rich.name][Role.WORKER])
                wants = few < poor.worker.max and WORTH(POLICY, poor, few)
                if (
                    wants
                    and PS_WANTED(POLICY, poor, few + 1, poor.ps.min) <= len(pods[poor.name][Role.PS])
                    and many > rich.workers_min
                    and _share(fleet, rich, pods, -2) > _share(fleet, poor, pods, 2)
                    and len(pods[rich.name][Role.PS]) == len(pods[poor.name][Role.PS])
                ):
                    problems.append(f"{rich.name} has {many} workers and {poor.name} {few}")
    return problems


def _claims(fleet: Fleet, waiting: list[Job], jobs: Jobs, pods: Pods, rooms: Rooms) -> list[str]:
    """No job waits within the quota of its queue for room that another queue has borrowed."""
    used = _used(jobs, pods)
    problems = []
    for job in waiting if len(waiting) == 1 else ():
        queue = next((each for each in fleet.queues if each.name == job.queue), None)
        if queue is None or exceeded(plus(used[queue.name], _gang(job)), queue.quota):
            continue
        for other in fleet.queues:
            owners = [each for each in jobs.values() if each.queue == other.name and any(pods[each.name].values())]
            if other is not queue and exceeded(used[other.name], other.quota):
                sets = (leavers for number in range(len(owners) + 1) for leavers in combinations(owners, number))
                if any(
                    _may_leave(leavers, owners, other)
                    and _gang_fits(fleet, job, _rooms_without(leavers, owners, rooms, pods), {}, {})
                    for leavers in sets
                ):
                    problems.append(f"{job.name} waits within its quota, and {other.name} borrows")
    return problems


def _may_leave(leavers: Collection[Job], owners: Sequence[Job], queue: Queue) -> bool:
    """Whether a queue has to return these jobs, one after the other: until the gangs that stay are within its quota."""
    staying: dict[str, int] = {}
    for job in owners:
        staying = plus(staying, {} if job in leavers else _gang(job))
    return not leavers or any(exceeded(plus(staying, _gang(last)), queue.quota) for last in leavers)


def _rooms_without(leavers: Collection[Job], owners: Sequence[Job], rooms: Rooms, pods: Pods) -> Rooms:
    """The rooms once these jobs have left, and the newest workers above the minimum of the others."""
    possible = {node: dict(room) for node, room in rooms.items()}
    for job in owners:
        least = 0 if job in leavers else job.workers_min
        leaving = sorted(pods[job.name][Role.WORKER], key=lambda pod: (len(pod.name), pod.name))[least:]
        if job in leavers:
            leaving += pods[job.name][Role.PS] + pods[job.name][Role.MASTER]
        for pod in leaving:
            possible[pod.node] = plus(possible[pod.node], pod.request)
    return possible


def _quotas(fleet: Fleet, jobs: Jobs, pods: Pods) -> list[str]:
    used = _used(jobs, pods)
    total = sum(used[each.name].get("cpu", 0) for each in fleet.queues)
    if total > sum(each.quota["cpu"] for each in fleet.queues):
        return [f"queues use {total} CPU, more than all quotas"]
    return []


def _priorities(fleet: Fleet, waiting: list[Job], rooms: Rooms, jobs: Jobs) -> list[str]:
    """No job waits for room that jobs of lower priority have. Jobs without a queue are looked at."""
    problems = []
    for job in waiting:
        if job.queue or any(other.priority >= job.priority and other is not job for other in waiting):
            continue
        possible = {node: dict(room) for node, room in rooms.items()}
        for pod in fleet.world.pods.values():
            if pod.job in jobs and jobs[pod.job].priority < job.priority and pod.node in possible:
                possible[pod.node] = plus(possible[pod.node], pod.request)
        if _gang_fits(fleet, job, possible, {}, {}):
            problems.append(f"{job.name} (priority {job.priority}) waits for room that others of lower priority have")
    return problems
