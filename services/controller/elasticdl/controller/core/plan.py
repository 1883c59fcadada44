"""The working state of one decision: the room that nodes will have once all orders are done.

Every change can be undone, so that a gang is placed as a whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from elasticdl.controller.core.cluster import Cluster, Drain, Phase, Pod, Role, Start
from elasticdl.controller.core.job import Group, Job
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.queues import Quotas
from elasticdl.controller.core.resources import Amounts, Resources, Shape, Units, add, shape_of, share, subtract
from elasticdl.controller.core.rooms import Rooms


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a job that stays, or that this decision starts."""

    pod: str
    job: str
    role: Role
    node: int
    """Number of the node."""


class Plan:
    """Pods per job and room per node, as this decision wants them. Nodes have numbers, in the order of their names."""

    def __init__(self, cluster: Cluster, jobs: Iterable[Job]) -> None:
        self.jobs = {job.name: job for job in sorted(jobs, key=lambda job: job.name)}
        nodes = sorted(cluster.nodes, key=lambda node: node.name)
        self.nodes = [node.name for node in nodes]
        self.numbers = {name: number for number, name in enumerate(self.nodes)}
        self.units = Units(self._requests(cluster))
        self.rooms = Rooms(nodes, self.units, self._usual(), self._constraints(cluster))
        self.total = self.rooms.total
        self.quotas = Quotas(cluster.queues, cluster.budgets)
        self.requests = {
            (job.name, role): self.units.amounts(job.group(role).request) for job in self.jobs.values() for role in Role
        }
        self.taken: dict[str, Amounts] = dict.fromkeys(self.jobs, self.units.zero)
        self.members: dict[str, dict[Role, dict[str, Member]]] = {
            name: {role: {} for role in Role} for name in self.jobs
        }
        self.workers_on: list[dict[str, Member]] = [{} for _ in nodes]
        self.starts: dict[str, Start] = {}
        self.drains: dict[str, str] = {}
        """Pod -> job."""
        self.leaving: Counter[tuple[str, Role]] = Counter()
        """Pods that are about to leave since an earlier decision."""
        self.waiting: dict[int, list[Member]] = {}
        """Node -> members that it does not hold yet."""
        self.stuck: list[Member] = []
        self.names: set[str] = set()
        self._shares: dict[str, dict[int, float]] = {}
        self._next: dict[tuple[str, Role], int] = {}
        self._undo: list[Callable[[], None]] = []
        self._read(cluster)

    def _active(self) -> list[Job]:
        return [job for job in self.jobs.values() if not (job.finished or job.suspended)]

    def _requests(self, cluster: Cluster) -> Iterable[Resources]:
        """Everything that has amounts of resources."""
        yield from (node.allocatable for node in cluster.nodes)
        yield from (job.group(role).request for job in self.jobs.values() for role in Role)
        yield from (pod.request for pod in cluster.pods if pod.job not in self.jobs)

    def _usual(self) -> tuple[Amounts, Amounts]:
        """The requests of most workers and of most ps."""
        active = self._active()
        worker, ps = _most_common(job.worker for job in active), _most_common(job.ps for job in active)
        return self.units.amounts(worker), self.units.amounts(ps)

    def _constraints(self, cluster: Cluster) -> set[Constraint]:
        found = {job.group(role).constraint for job in self.jobs.values() for role in Role}
        return found | {pod.constraint for pod in cluster.pods if pod.phase is Phase.PENDING}

    def _read(self, cluster: Cluster) -> None:
        """Count what is there: expected starts as pods, expected drains as gone."""
        gone = {order.pod for order in cluster.ordered if isinstance(order, Drain)}
        seen = {pod.name for pod in cluster.pods}
        for pod in cluster.pods:
            self.names.add(pod.name)
            node = self.numbers.get(pod.node)
            if pod.job in self.jobs and pod.role and (pod.phase is Phase.LEAVING or pod.name in gone):
                self.leaving[pod.job, pod.role] += 1
                if pod.role is Role.PS and node is not None:
                    self.rooms.hold(node, self.requests[pod.job, Role.PS], 1)
            elif pod.job in self.jobs and pod.role and node is not None:
                self._put(member := Member(pod.name, pod.job, pod.role, node))
                if pod.phase is Phase.PENDING:
                    self.waiting.setdefault(node, []).append(member)
                elif pod.phase is Phase.STUCK:
                    self.stuck.append(member)
            elif node is not None and pod.phase is not Phase.LEAVING:
                self.rooms.take(node, self.units.amounts(pod.request))
        for order in cluster.ordered:
            if isinstance(order, Start) and order.pod not in seen | gone and order.job in self.jobs:
                self.names.add(order.pod)
                if (node := self.numbers.get(order.node)) is not None:
                    self._put(member := Member(order.pod, order.job, order.role, node))
                    self.waiting.setdefault(node, []).append(member)

    def workers(self, job: str) -> int:
        """Number of workers."""
        return len(self.members[job][Role.WORKER])

    def ps(self, job: str) -> int:
        """Number of ps."""
        return len(self.members[job][Role.PS])

    def admitted(self, job: str) -> bool:
        """Whether the job has its master."""
        return bool(self.members[job][Role.MASTER])

    def has_pods(self, job: str) -> bool:
        """Whether the job has any pod. It keeps its place even if its master has just crashed."""
        return any(self.members[job].values())

    def surplus(self, job: str) -> int:
        """Workers above the minimum."""
        return max(0, self.workers(job) - self.jobs[job].workers_min)

    def share(self, job: str, workers: int = 0) -> float:
        """Dominant share by weight, with this many workers more."""
        known = self._shares.setdefault(job, {})
        if workers not in known:
            known[workers] = self._share(job, add(self.taken[job], self.requests[job, Role.WORKER], workers))
        return known[workers]

    def _share(self, job: str, taken: Amounts) -> float:
        return share(taken, self.total) / self.jobs[job].weight

    def request(self, member: Member) -> Amounts:
        """What a member takes."""
        return self.requests[member.job, member.role]

    def newest(self, job: str) -> list[Member]:
        """The workers of a job, those with the highest numbers first."""
        return sorted(self.members[job][Role.WORKER].values(), key=lambda each: (len(each.pod), each.pod), reverse=True)

    def start(self, job: str, role: Role, node: int) -> Member:
        """Start a pod of a job on a node."""
        number = self._next.get((job, role), 0)
        while (pod := f"{job}-{role.value}-{number}") in self.names:
            number += 1
        self._next[job, role] = number
        member = Member(pod, job, role, node)
        self._put(member)
        self.names.add(pod)
        self.starts[pod] = Start(pod=pod, job=job, role=role, node=self.nodes[node])

        def undo() -> None:
            del self.starts[pod]
            self._free_name(member)
            self._take(member)

        self._undo.append(undo)
        return member

    def _free_name(self, member: Member) -> None:
        self.names.remove(member.pod)
        self._next[member.job, member.role] = 0

    def drain(self, member: Member) -> None:
        """Let a pod go; a start of this decision is taken back."""
        self._take(member)
        if (start := self.starts.pop(member.pod, None)) is not None:
            self._free_name(member)

            def undo() -> None:
                self.starts[member.pod] = start
                self.names.add(member.pod)
                self._put(member)

        else:
            self.drains[member.pod] = member.job
            held = self.request(member) if member.role is Role.PS else self.units.zero
            self.rooms.hold(member.node, held, 1)

            def undo() -> None:
                del self.drains[member.pod]
                self.rooms.hold(member.node, held, -1)
                self._put(member)

        self._undo.append(undo)

    def reserve(self, node: int, request: Amounts) -> None:
        """Keep room for a pod that the plain scheduler places."""
        self.rooms.take(node, request)
        self._undo.append(lambda: self.rooms.give(node, request))

    def mark(self) -> int:
        """A point to return to."""
        return len(self._undo)

    def undo(self, mark: int) -> None:
        """Return to a mark."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def _put(self, member: Member) -> None:
        job, request = self.jobs[member.job], self.request(member)
        self.members[job.name][member.role][member.pod] = member
        self.taken[job.name] = add(self.taken[job.name], request)
        self._shares.pop(job.name, None)
        if self.quotas.is_limiting:
            self.quotas.change(job, job.group(member.role).request, 1)
        if member.role is Role.WORKER:
            self.workers_on[member.node][member.pod] = member
            self.rooms.take_for_worker(member.node, request)
        else:
            self.rooms.take(member.node, request)

    def _take(self, member: Member) -> None:
        job, request = self.jobs[member.job], self.request(member)
        del self.members[job.name][member.role][member.pod]
        self.taken[job.name] = subtract(self.taken[job.name], request)
        self._shares.pop(job.name, None)
        if self.quotas.is_limiting:
            self.quotas.change(job, job.group(member.role).request, -1)
        if member.role is Role.WORKER:
            del self.workers_on[member.node][member.pod]
            self.rooms.give_from_worker(member.node, request)
        else:
            self.rooms.give(member.node, request)


def pending_services(pods: Iterable[Pod], jobs: Collection[Job]) -> list[Pod]:
    """Pods of others that wait for a node, the most important first; not those with a lower priority than all jobs."""
    known = {job.name for job in jobs}
    least = min((job.priority for job in jobs), default=0)
    waiting = [
        pod
        for pod in pods
        if pod.job not in known and pod.phase is Phase.PENDING and not pod.node and pod.priority >= least
    ]
    return sorted(waiting, key=lambda pod: (-pod.priority, pod.name))


def _most_common(groups: Iterable[Group]) -> Resources:
    """The request of most pods."""
    numbers: Counter[Shape] = Counter()
    for group in groups:
        numbers[shape_of(group.request)] += group.max
    most: Shape = max(numbers, key=lambda shape: (numbers[shape], shape), default=())
    return dict(most)
