"""The simulated cluster: its pods and nodes, the plain scheduler, and what pods do as time passes."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from elasticdl.controller.core import Cluster, Drain, Job, Node, Phase, Pod, Role, Start
from elasticdl.controller.core.resources import Resources, Shape, has_room, plus, shape_of
from elasticdl.controller.sim.scenario import JobSpec, Scenario, Service


@dataclass(slots=True)
class SimPod:
    """A pod of the simulation."""

    name: str
    request: Resources
    priority: int
    number: int
    job: str = ""
    role: Role | None = None
    node: str = ""
    bound: bool = False
    phase: Phase = Phase.PENDING


@dataclass(slots=True)
class SimJob:
    """A job of the simulation."""

    spec: JobSpec
    done: float = 0.0
    """Seconds of one worker."""
    pods: dict[str, SimPod] = field(default_factory=dict)
    ordered: dict[str, Start] = field(default_factory=dict)
    """What the master starts once it runs."""
    first_worker_s: float | None = None
    started_s: float | None = None
    finished_s: float | None = None
    version: int = 0
    """Of its pods; an expected end counts only if they have not changed."""

    def number(self, role: Role) -> int:
        """Pods of a role that work. A ps works until its groups have moved."""
        working = (Phase.RUNNING, Phase.LEAVING) if role is Role.PS else (Phase.RUNNING,)
        return sum(pod.role is role and pod.phase in working and pod.bound for pod in self.pods.values())

    @property
    def workers(self) -> int:
        """Workers that train. Without the master and the minimum of ps none does."""
        whole = self.number(Role.MASTER) and self.number(Role.PS) >= self.spec.ps.min
        return self.number(Role.WORKER) if whole else 0

    @property
    def ps_load(self) -> float:
        """Busy fraction of the ps; above 1 they are what training waits for."""
        ps = self.number(Role.PS)
        return self.workers / (ps * self.spec.workers_per_ps) if ps else 0.0

    @property
    def speed(self) -> float:
        """Work per second."""
        return self.spec.curve.speed(self.workers) / max(1.0, self.ps_load)


class World:
    """All state of a simulation. Times are seconds since its start."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.times = scenario.times
        self.random = Random(seed)  # noqa: S311
        self.now_s = 0.0
        self.nodes = {
            f"node-{number:03}": plus(amounts, scenario.system, -1) for number, amounts in enumerate(scenario.nodes)
        }
        self.free = {name: dict(amounts) for name, amounts in self.nodes.items()}
        self.node_labels = dict(zip(self.nodes, scenario.node_labels, strict=False))
        self.jobs: dict[str, SimJob] = {}
        self.services: dict[str, list[SimPod]] = {service.name: [] for service in scenario.services}
        self.wanted = dict.fromkeys(self.services, 0)
        self.pods: dict[str, SimPod] = {}
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.changed = True
        self.drained = 0
        """Pods of jobs that had to leave before their job finished."""
        self._number = 0
        for job in scenario.jobs:
            self.at(job.submit_s, lambda job=job: self._submit(job))  # type: ignore[misc]
        for service in scenario.services:
            for second, number in service.replicas:
                self.at(second, lambda s=service, n=number: self._scale(s, n))  # type: ignore[misc]

    def at(self, second: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        self._number += 1
        heapq.heappush(self.events, (second, self._number, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later."""
        self.at(self.now_s + seconds, action)

    def advance(self, second: float) -> None:
        """Let jobs work until a time."""
        for job in self.jobs.values():
            job.done += job.speed * (second - self.now_s)
        self.now_s = second

    # What policies order.

    def create(self, pod: SimPod) -> None:
        """Create a pod; the scheduler places it."""
        self.pods[pod.name] = pod
        if pod.job:
            self.jobs[pod.job].pods[pod.name] = pod
        self.changed = True

    def new_pod(self, job: str, role: Role, name: str, node: str = "") -> SimPod:
        """A pod of a job."""
        self._number += 1
        spec = self.jobs[job].spec
        group = {Role.MASTER: spec.master, Role.PS: spec.ps, Role.WORKER: spec.worker}[role]
        return SimPod(name, group.request, spec.priority, self._number, job, role, node)

    def order(self, start: Start) -> None:
        """Create a master at once, and other pods as soon as the master runs."""
        job = self.jobs[start.job]
        if start.role is Role.MASTER or job.number(Role.MASTER):
            self.create(self.new_pod(start.job, start.role, start.pod, start.node))
        else:
            job.ordered[start.pod] = start

    def drain(self, job: str, name: str) -> None:
        """Let a pod hand over its work and go."""
        if self.jobs[job].ordered.pop(name, None) is not None:
            return
        pod = self.pods.get(name)
        if pod is None or pod.phase is Phase.LEAVING:
            return
        self.drained += self.jobs[job].finished_s is None
        working, pod.phase = pod.phase is Phase.RUNNING, Phase.LEAVING
        if working and pod.role is Role.PS and self.jobs[job].finished_s is None:
            self.after(self.random.uniform(*self.times.drain), lambda: self._remove_ps(pod))
        else:
            self.after(self.random.uniform(*self.times.drain) if working else 0.0, lambda: self.remove(pod))
        self._job_changed(job)

    def _remove_ps(self, pod: SimPod) -> None:
        """A ps goes when its groups are on others; so it waits for ps that are still starting."""
        job = self.jobs[pod.job]
        starting = any(
            each.role is Role.PS and each.phase in (Phase.PENDING, Phase.STARTING) for each in job.pods.values()
        )
        if starting and job.finished_s is None and job.number(Role.MASTER):
            self.after(0.5, lambda: self._remove_ps(pod))
        else:
            job.done -= job.speed * self.times.move_pause
            self.remove(pod)

    def remove(self, pod: SimPod) -> None:
        """A pod is gone."""
        if self.pods.get(pod.name) is not pod:
            return  # It is gone already, and another one has its name.
        del self.pods[pod.name]
        if pod.bound:
            self.free[pod.node] = plus(self.free[pod.node], pod.request)
        if pod.job:
            self.jobs[pod.job].pods.pop(pod.name)
            self._job_changed(pod.job)
        self.changed = True

    # The plain scheduler.

    def schedule(self) -> None:
        """Bind pending pods, those with the highest priority first, to the node with the most free room."""
        waiting = [pod for pod in self.pods.values() if pod.phase is Phase.PENDING]
        full: set[Shape] = set()
        for pod in sorted(waiting, key=lambda pod: (-pod.priority, pod.number)):
            shape = shape_of(pod.request)
            if pod.node:
                nodes = [pod.node] if has_room(pod.request, self.free[pod.node]) else []
            elif shape in full:
                nodes = []
            else:
                nodes = [name for name, room in self.free.items() if has_room(pod.request, room)]
                full |= set() if nodes else {shape}
            if nodes:
                self._bind(pod, max(nodes, key=self._emptiness))

    def _emptiness(self, node: str) -> float:
        """Kubernetes' LeastAllocated: the mean free fraction of the resources of a node."""
        amounts = self.nodes[node]
        return sum(self.free[node].get(name, 0) / amount for name, amount in amounts.items() if amount) / len(amounts)

    def _bind(self, pod: SimPod, node: str) -> None:
        pod.node, pod.bound, pod.phase = node, True, Phase.STARTING
        self.free[node] = plus(self.free[node], pod.request, -1)
        self.after(self.times.start if pod.job else self.times.service_start, lambda: self._run(pod))

    def _run(self, pod: SimPod) -> None:
        if pod.phase is not Phase.STARTING:
            return
        pod.phase = Phase.RUNNING
        self.changed = True
        if not pod.job:
            return
        job = self.jobs[pod.job]
        if pod.role is Role.WORKER and job.first_worker_s is None:
            job.first_worker_s = self.now_s
        if pod.role is Role.MASTER:
            for start in job.ordered.values():
                self.create(self.new_pod(start.job, start.role, start.pod, start.node))
            job.ordered.clear()
        self._job_changed(pod.job)

    # Jobs and services.

    def _submit(self, spec: JobSpec) -> None:
        self.jobs[spec.name] = SimJob(spec)
        self.changed = True

    def _job_changed(self, name: str) -> None:
        """Note the first batch, and look when the work will be done."""
        job = self.jobs[name]
        job.version += 1
        if job.started_s is None and job.workers:
            job.started_s = self.now_s
        if job.spec.work is not None and job.finished_s is None and job.speed > 0:
            version, left = job.version, max(0.0, job.spec.work - job.done)
            self.after(left / job.speed, lambda: self._finish(name, version))

    def _finish(self, name: str, version: int) -> None:
        job = self.jobs[name]
        if job.version == version:
            job.finished_s = self.now_s
            self.changed = True

    def _scale(self, service: Service, number: int) -> None:
        """A ReplicaSet: pods that are not running go first, then those on nodes with the most of them."""
        pods = self.services[service.name]
        self.wanted[service.name] = number
        while len(pods) < number:
            self._number += 1
            pod = SimPod(f"{service.name}-{self._number}", service.request, service.priority, self._number)
            pods.append(pod)
            self.create(pod)
        while len(pods) > number:
            on = {pod.node: sum(each.node == pod.node for each in pods) for pod in pods}
            pod = max(pods, key=lambda pod: (pod.phase is not Phase.RUNNING, on[pod.node], pod.number))
            pods.remove(pod)
            pod.phase = Phase.LEAVING
            self.after(1.0, lambda pod=pod: self.remove(pod))  # type: ignore[misc]

    # What policies see.

    def cluster(self) -> Cluster:
        """The cluster as the core sees it."""
        nodes = tuple(
            Node(name=name, allocatable=amounts, labels=self.node_labels.get(name, {}))
            for name, amounts in self.nodes.items()
        )
        pods = tuple(
            Pod(
                name=pod.name,
                request=pod.request,
                node=pod.node,
                phase=pod.phase,
                priority=pod.priority,
                job=pod.job,
                role=pod.role,
            )
            for pod in self.pods.values()
        )
        ordered: list[Start | Drain] = [start for job in self.jobs.values() for start in job.ordered.values()]
        return Cluster(nodes=nodes, pods=pods, ordered=tuple(ordered), queues=self.scenario.queues)

    def core_jobs(self) -> list[Job]:
        """The jobs as the core sees them."""
        return [
            Job(
                name=name,
                master=job.spec.master,
                ps=job.spec.ps,
                worker=job.spec.worker,
                created_s=job.spec.submit_s,
                priority=job.spec.priority,
                weight=job.spec.weight,
                queue=job.spec.queue,
                finished=job.finished_s is not None,
                curve=job.spec.curve,
                ps_load=min(1.0, job.ps_load) if job.workers else None,
                ps_load_workers=job.workers,
                ps_load_ps=job.number(Role.PS),
                remaining_s=self._remaining_s(job),
            )
            for name, job in self.jobs.items()
            if job.finished_s is None or job.pods or job.ordered
        ]

    def _remaining_s(self, job: SimJob) -> float | None:
        if job.spec.work is None or not job.speed:
            return None
        return max(0.0, job.spec.work - job.done) / job.speed
