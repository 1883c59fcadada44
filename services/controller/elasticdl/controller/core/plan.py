"""The working state of one decision: the room that nodes will have once all orders are done.

Every change can be undone, so that a gang is placed as a whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from elasticdl.controller.core.cluster import Cluster, Drain, Phase, Pod, Role, Start
from elasticdl.controller.core.job import Group, Job
from elasticdl.controller.core.resources import Resources, Shape, count, plus, shape_of, share


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a job that stays, or that this decision starts."""

    pod: str
    job: str
    role: Role
    node: str


class Plan:
    """Pods per job and room per node, as this decision wants them."""

    def __init__(self, cluster: Cluster, jobs: Iterable[Job]) -> None:
        self.jobs = {job.name: job for job in sorted(jobs, key=lambda job: job.name)}
        self.cluster_nodes = cluster.nodes
        self.nodes = [node.name for node in cluster.nodes]
        self.free: dict[str, dict[str, int]] = {node.name: dict(node.allocatable) for node in cluster.nodes}
        self.held: dict[str, dict[str, int]] = {node.name: {} for node in cluster.nodes}
        """Node -> room that ps hold until their groups have moved."""
        self.total: Resources = {}
        for node in cluster.nodes:
            self.total = plus(self.total, node.allocatable)
        self.taken: dict[str, dict[str, int]] = {name: {} for name in self.jobs}
        self.members: dict[str, dict[Role, dict[str, Member]]] = {
            name: {role: {} for role in Role} for name in self.jobs
        }
        self.workers_on: dict[str, dict[str, Member]] = {name: {} for name in self.nodes}
        self.starts: dict[str, Start] = {}
        self.drains: dict[str, str] = {}
        """Pod -> job."""
        self.leaving: Counter[tuple[str, Role]] = Counter()
        """Pods that are about to leave since an earlier decision."""
        self.waiting: dict[str, list[Member]] = {name: [] for name in self.nodes}
        """Node -> members that it does not hold yet."""
        self.stuck: list[Member] = []
        self.names: set[str] = set()
        active = [job for job in self.jobs.values() if not (job.finished or job.suspended)]
        self.filler: Resources = _most_common(job.worker for job in active)
        """What most workers request: room that does not hold one is lost for them."""
        self.ps_request: Resources = _most_common(job.ps for job in active)
        self._undo: list[Callable[[], None]] = []
        self._read(cluster)

    def _read(self, cluster: Cluster) -> None:
        """Count what is there: expected starts as pods, expected drains as gone."""
        gone = {order.pod for order in cluster.ordered if isinstance(order, Drain)}
        seen = {pod.name for pod in cluster.pods}
        for pod in cluster.pods:
            self.names.add(pod.name)
            if pod.job in self.jobs and pod.role and (pod.phase is Phase.LEAVING or pod.name in gone):
                self.leaving[pod.job, pod.role] += 1
                if pod.role is Role.PS and pod.node in self.held:
                    self.held[pod.node] = plus(self.held[pod.node], pod.request)
            elif pod.job in self.jobs and pod.role and pod.node in self.free:
                self._add(member := Member(pod.name, pod.job, pod.role, pod.node))
                if pod.phase is Phase.PENDING:
                    self.waiting[pod.node].append(member)
                elif pod.phase is Phase.STUCK:
                    self.stuck.append(member)
            elif pod.node in self.free and pod.phase is not Phase.LEAVING:
                self.free[pod.node] = plus(self.free[pod.node], pod.request, -1)
        for order in cluster.ordered:
            if isinstance(order, Start) and order.pod not in seen | gone and order.job in self.jobs:
                self.names.add(order.pod)
                if order.node in self.free:
                    self._add(member := Member(order.pod, order.job, order.role, order.node))
                    self.waiting[order.node].append(member)
        self._undo.clear()

    def workers(self, job: str) -> int:
        """Number of workers."""
        return len(self.members[job][Role.WORKER])

    def ps(self, job: str) -> int:
        """Number of ps."""
        return len(self.members[job][Role.PS])

    def admitted(self, job: str) -> bool:
        """Whether the job has its master."""
        return bool(self.members[job][Role.MASTER])

    def surplus(self, job: str) -> int:
        """Workers above the minimum."""
        return max(0, self.workers(job) - self.jobs[job].workers_min)

    def share(self, job: str, workers: int = 0) -> float:
        """Dominant share by weight, with this many workers more."""
        taken = plus(self.taken[job], self.jobs[job].worker.request, workers)
        return share(taken, self.total) / self.jobs[job].weight

    def room(self, node: str, for_ps: bool = False) -> dict[str, int]:
        """Room once all that leaves is gone.

        A ps gets no room of another ps: that one may wait for a third to start, and so on in a circle.
        """
        return plus(self.free[node], self.held[node], -1) if for_ps else self.free[node]

    def potential(self, node: str, for_ps: bool = False) -> dict[str, int]:
        """Room of a node without workers."""
        room = self.room(node, for_ps)
        for member in self.workers_on[node].values():
            room = plus(room, self.request(member))
        return room

    def request(self, member: Member) -> Resources:
        """What a member takes."""
        return self.jobs[member.job].group(member.role).request

    def start(self, job: str, role: Role, node: str) -> Member:
        """Start a pod of a job on a node."""
        number = 0
        while (pod := f"{job}-{role.value}-{number}") in self.names:
            number += 1
        member = Member(pod, job, role, node)
        self._add(member)
        self.names.add(pod)
        self.starts[pod] = Start(pod=pod, job=job, role=role, node=node)

        def undo() -> None:
            del self.starts[pod]
            self.names.remove(pod)

        self._undo.append(undo)
        return member

    def drain(self, member: Member) -> None:
        """Let a pod go; a start of this decision is taken back."""
        self._remove(member)
        if (start := self.starts.pop(member.pod, None)) is not None:
            self.names.remove(member.pod)

            def undo() -> None:
                self.starts[member.pod] = start
                self.names.add(member.pod)

        else:
            self.drains[member.pod] = member.job
            held = self.request(member) if member.role is Role.PS else {}
            self.held[member.node] = plus(self.held[member.node], held)

            def undo() -> None:
                del self.drains[member.pod]
                self.held[member.node] = plus(self.held[member.node], held, -1)

        self._undo.append(undo)

    def reserve(self, node: str, request: Resources) -> None:
        """Keep room for a pod that the plain scheduler places."""
        self._change(node, request, -1)
        self._undo.append(lambda: self._change(node, request, 1))

    def mark(self) -> int:
        """A point to return to."""
        return len(self._undo)

    def undo(self, mark: int) -> None:
        """Return to a mark."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def _change(self, node: str, request: Resources, times: int) -> None:
        self.free[node] = plus(self.free[node], request, times)

    def _add(self, member: Member) -> None:
        self._put(member)
        self._undo.append(lambda: self._take(member))

    def _remove(self, member: Member) -> None:
        self._take(member)
        self._undo.append(lambda: self._put(member))

    def _put(self, member: Member) -> None:
        self.members[member.job][member.role][member.pod] = member
        self.taken[member.job] = plus(self.taken[member.job], self.request(member))
        self._change(member.node, self.request(member), -1)
        if member.role is Role.WORKER:
            self.workers_on[member.node][member.pod] = member

    def _take(self, member: Member) -> None:
        del self.members[member.job][member.role][member.pod]
        self.taken[member.job] = plus(self.taken[member.job], self.request(member), -1)
        self._change(member.node, self.request(member), 1)
        if member.role is Role.WORKER:
            del self.workers_on[member.node][member.pod]


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


def waste(plan: Plan, room: Resources) -> float:
    """What stays empty in a room that workers and ps fill as well as they can, as a share of the cluster."""
    least, left = 1.0, dict(room)
    for _ in range(count(plan.ps_request, room) + 1):
        least = min(least, share(plus(left, plan.filler, -count(plan.filler, left)), plan.total))
        left = plus(left, plan.ps_request, -1)
    return least
