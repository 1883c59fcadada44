"""Room for others first, then each job's gang: its master, its minimum of ps and its minimum of workers, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial

from elasticdl.controller.core.cluster import Pod, Role
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.plan import Plan
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.resources import Amounts, Resources, add, fits, plus
from elasticdl.controller.core.stages.packing import Wish, place, start_all
from elasticdl.shared.words import count


def return_stuck(plan: Plan, reasons: dict[str, str]) -> None:
    """Pods that can't start return their room; a job that can't start without them returns all."""
    for _, member in sorted(plan.stuck.items()):
        if member.pod not in plan.members[member.job][member.role]:
            continue
        plan.drain(member)
        job = plan.jobs[member.job]
        reasons[job.name] = f"{member.pod} can't start and returns its room"
        least = _least(job)[member.role]
        if len(plan.members[job.name][member.role]) < least:
            _remove_job(plan, job.name)


def make_room(plan: Plan, reasons: dict[str, str]) -> None:
    """Keep or make room for pending pods of others with a higher priority than the jobs that give it."""
    waiting, start = _pending_services(plan), 0
    while start < len(waiting):
        first, end = waiting[start], start
        while end < len(waiting) and _is_alike(waiting[end], first):
            end += 1
        request = plan.units.amounts(first.request)
        if not _reserve(plan, request, first.constraint, end - start, first.priority):
            attempt = partial(_reserve, plan, request, first.constraint, 1, first.priority)
            leaves = partial(_is_below, first.priority)
            for _ in range(end - start):
                reason = f"gives all its room to {first.name} (priority {first.priority})"
                if not _with_leavers(plan, attempt, leaves, reason, reasons):
                    break
        start = end


def _pending_services(plan: Plan) -> list[Pod]:
    """Pods of others that wait for a node, the most important first; not those with a lower priority than all jobs."""
    if not plan.pending:
        return []
    least = min((job.priority for job in plan.jobs.values()), default=0)
    waiting = [pod for pod in plan.pending.values() if pod.priority >= least]
    return sorted(waiting, key=lambda pod: (-pod.priority, pod.name))


def _is_alike(pod: Pod, other: Pod) -> bool:
    return (pod.request, pod.priority, pod.constraint) == (other.request, other.priority, other.constraint)


def _is_below(priority: int, job: Job) -> bool:
    return job.priority < priority


def _reserve(plan: Plan, request: Amounts, constraint: Constraint, pods: int, priority: int) -> bool:
    def yields(job: str) -> bool:
        return plan.jobs[job].priority < priority

    wish = Wish(request=request, constraint=constraint, pods=pods)
    return place(plan, wish, yields, lambda node: plan.reserve(node, request))


def _with_leavers(
    plan: Plan,
    attempt: Callable[[], bool],
    leaves: Callable[[Job], bool],
    reason: str,
    reasons: dict[str, str],
    stays: Callable[[Job], bool] = lambda _: False,
) -> bool:
    """Try to place something; while workers above the minimum are not enough, whole jobs leave.

    Args:
        leaves: whether a job would leave for it; those with the lowest priority go first, and of these the newest.
            Those with the same priority and queue do so alike.
        stays: whether a job that would leave has to stay, because of what it holds.
    """
    if attempt():
        return True
    mark = plan.mark()
    order = sorted(_leavers(plan, leaves), key=_turn, reverse=True)
    for _ in range(2):
        left: list[Job] = []
        kept: list[Job] = []
        for lower in order:
            if not leaves(lower) or stays(lower):
                kept.append(lower)  # Its queue is within its quota by now, or would be below.
                continue
            _remove_job(plan, lower.name)
            left.append(lower)
            if attempt():
                reasons.update({job.name: reason for job in left})
                return True
        plan.undo(mark)
        if not kept:
            break
        order = [*kept, *left]  # A queue may have to return the room of another job.
    return False


def _turn(job: Job) -> tuple[int, float, str]:
    """Jobs with the smallest one are admitted first, and leave last."""
    return -job.priority, job.created_s, job.name


def _leavers(plan: Plan, leaves: Callable[[Job], bool]) -> list[Job]:
    """The jobs that would leave."""
    return [
        plan.jobs[name]
        for names in plan.alike.values()
        if leaves(plan.jobs[next(iter(names))])
        for name in names
        if plan.admitted(name)
    ]


def _remove_job(plan: Plan, job: str) -> None:
    for role in (Role.WORKER, Role.PS, Role.MASTER):
        for member in plan.by_name(job, role):
            plan.drain(member)


def is_whole(plan: Plan, job: Job) -> bool:
    """Whether the job has its gang."""
    return not any(_lacking(plan, job).values())


def admit(
    plan: Plan, order: Iterable[Job], now_s: float, policy: Policy, reasons: dict[str, str], claimed: Set[str]
) -> None:
    """Complete the gangs of the jobs, in this order. No job passes one that waits: later ones would starve it.

    Args:
        order: at least the jobs whose gangs are incomplete.
        claimed: jobs that would have to return at once what they borrow.
    """
    first, closed, behind = "", frozenset[int](), dict[tuple[str, str], str]()
    for job in order:
        if is_whole(plan, job):
            continue
        if job.name in reasons and not plan.admitted(job.name):
            continue  # It has just given its room away.
        if not _ready(plan, job, now_s, policy, reasons):
            continue
        if not plan.has_pods(job.name) and (waiting := behind.get((job.namespace, job.queue))):
            reasons[job.name] = f"waits behind {waiting}" + (f" in queue {job.queue}" if job.queue else "")
            continue
        failed: list[Role | str] = []
        if job.name in claimed:
            reasons[job.name] = "waits for its quota: other queues claim what it would borrow"
            behind[job.namespace, job.queue] = job.name
            continue
        attempt = partial(_start_gang, plan, job, frozenset() if plan.has_pods(job.name) else closed, failed)
        reason = f"gives all its room to job {job.name} (priority {job.priority})"
        leaves, stays = partial(_leaves_for, plan, job), partial(_owns_room, plan, job)
        if not _with_leavers(plan, attempt, leaves, reason, reasons, stays):
            _remove_job(plan, job.name)  # What is left of a gang would hold room and train nothing.
            if not isinstance(role := failed[-1], Role):
                reasons[job.name] = f"waits for its quota: {role}"
                behind[job.namespace, job.queue] = job.name
                continue
            needed = _needed_nodes(plan, job, role)
            if first and needed & closed:
                reasons[job.name] = f"waits behind {first}"
            else:
                reasons[job.name] = f"waits for room: {_gang(job)} at once"
                first = first or job.name
            closed |= needed


def _needed_nodes(plan: Plan, job: Job, role: Role) -> frozenset[int]:
    """The groups of nodes that a job waits for. Jobs behind it pass only if they do without these."""
    return frozenset(plan.rooms.large_enough(plan.requests[job.name][role], job.group(role).constraint))


def _leaves_for(plan: Plan, taker: Job, job: Job) -> bool:
    """Whether a whole job leaves for the gang of another one.

    What gangs have borrowed goes back to a queue within its quota, and is never a reason to take from such a queue.
    """
    if job.queue != taker.queue:
        gives_back = plan.quotas.is_over(job) and plan.quotas.gangs_are_over(job.queue)
        borrows = plan.quotas.is_over(taker, _gang_request(plan, taker))
        if borrows and not gives_back:
            return False
        if gives_back and not borrows and taker.queue:
            return True
    return job.priority < taker.priority


def _owns_room(plan: Plan, taker: Job, job: Job) -> bool:
    """Whether a job holds some of its queue's quota, so that a gang that borrows would borrow what the queue claims."""
    if job.queue in ("", taker.queue) or not plan.quotas.is_over(taker, _gang_request(plan, taker)):
        return False
    held, own = plan.quotas.gangs[job.queue], plan.quotas.queues[job.queue].quota
    for role, pods in _least(job).items():
        held = plus(held, job.group(role).request, -pods)
    return any(held.get(name, 0) < own.get(name, 0) for role in _least(job) for name in job.group(role).request)


def _least(job: Job) -> dict[Role, int]:
    """The gang, those first that are hardest to place."""
    return {role: job.least(role) for role in (Role.PS, Role.MASTER, Role.WORKER)}


def _lacking(plan: Plan, job: Job) -> dict[Role, int]:
    """What the gang lacks."""
    members = plan.members[job.name]
    return {role: max(0, pods - len(members[role])) for role, pods in _least(job).items()}


def _gang_request(plan: Plan, job: Job) -> Resources:
    """The amounts that the gang lacks."""
    needed: Resources = {}
    for role, pods in _lacking(plan, job).items():
        needed = plus(needed, job.group(role).request, pods)
    return needed


def reclaim(plan: Plan, running: Sequence[Job], reasons: dict[str, str]) -> set[str]:
    """Queues that use more than they may give back: workers above the minimum first, then whole jobs, the newest first.

    That happens when a queue claims its quota while others have borrowed it, and when an administrator lowers a limit.
    Whole jobs leave only for quotas that are claimed; returns these.
    """
    left: set[str] = set()
    while plan.quotas.queues:
        is_claimed = bool(plan.quotas.overdrawn())
        over = [
            job
            for job in running
            if plan.admitted(job.name)
            and (plan.quotas.is_beyond_limit(job) or (is_claimed and plan.quotas.is_over(job)))
        ]
        if not over:
            break
        if givers := [job for job in over if plan.surplus(job.name)]:
            leaver = max(givers, key=lambda job: (plan.share(job.name), job.name))
            plan.drain(plan.newest(leaver.name)[0])
        elif is_claimed:
            leaver = max(over, key=_turn)
            _remove_job(plan, leaver.name)
            left.add(leaver.name)
        else:
            break
        reasons[leaver.name] = f"returns what queue {leaver.queue} has borrowed from others"
    return left


def _ready(plan: Plan, job: Job, now_s: float, policy: Policy, reasons: dict[str, str]) -> bool:
    """Whether the job may get pods now, and could ever hold its gang."""
    if not policy.may_grow(job, now_s):
        why = f"pods would be refused: {job.forbidden}" if job.forbidden else "pods could not start or were refused"
        reasons.setdefault(job.name, f"waits, because {why}")
        return False
    if (lacking := _never_fits(plan, job)) and not plan.admitted(job.name):
        _remove_job(plan, job.name)
        reasons[job.name] = f"{lacking}: {_gang(job)} needed"
        return False
    return True


def _start_gang(plan: Plan, job: Job, closed: frozenset[int], failed: list[Role | str]) -> bool:
    """Start what the gang lacks, or nothing; then ``failed`` says for which role there was no room, or no quota."""
    mark = plan.mark()
    if refusal := _claim(plan, job):
        plan.undo(mark)
        failed.append(refusal)
        return False
    borrows = plan.quotas.is_limiting and plan.quotas.is_over(job, _gang_request(plan, job))

    def yields(other: str) -> bool:
        """A gang comes before the surplus of every job, its own included, but for what others have by their quota."""
        giver = plan.jobs[other]
        return not borrows or giver.queue == job.queue or not giver.queue or plan.quotas.is_over(giver)

    def start(roles: Iterable[Role]) -> Role | None:
        """Start what the gang lacks in this order; otherwise the role for which there is no room."""
        begun = plan.mark()
        for role in roles:
            if not start_all(plan, job.name, role, lacking[role], yields, closed=closed):
                plan.undo(begun)
                return role
        return None

    lacking = _lacking(plan, job)
    if (role := start(lacking)) is None:
        return True
    # A ps may have taken the only nodes where workers may stand.
    strictest = sorted(lacking, key=lambda role: len(plan.rooms.groups(job.group(role).constraint)))
    if strictest != list(lacking) and start(strictest) is None:
        return True
    plan.undo(mark)
    failed.append(role)
    return False


def _gang(job: Job) -> str:
    return f"1 master, {job.ps.min} ps and {count(job.workers_min, 'worker')}"


def _claim(plan: Plan, job: Job) -> str:
    """Let workers of the job's own queue leave, as far as the quota needs that; returns why that is not enough."""
    if not plan.quotas.is_limiting and not job.queue:
        return ""
    request = _gang_request(plan, job)
    if not plan.quotas.refusal(job, request):
        return ""
    others = [other for other in plan.jobs.values() if other.name != job.name and plan.quotas.share_limits(job, other)]
    while refusal := plan.quotas.refusal(job, request):
        givers = [other.name for other in others if plan.surplus(other.name)]
        if not givers:
            return refusal
        plan.drain(plan.newest(max(givers, key=lambda name: (plan.share(name), name)))[0])
    return ""


def _never_fits(plan: Plan, job: Job) -> str:
    """Why the job could not even have an empty cluster; empty if it could."""
    needed = plan.units.zero
    for role, pods in _least(job).items():
        request, constraint = plan.requests[job.name][role], job.group(role).constraint
        needed = add(needed, request, pods)
        if pods and not plan.rooms.groups(constraint):
            return f"no node has what the node selector, affinity and tolerations of a {role.value} ask for"
        if pods and not plan.rooms.large_enough(request, constraint):
            return f"no node is large enough for a {role.value}"
    return "" if fits(needed, plan.rooms.total) else "the cluster is too small"
