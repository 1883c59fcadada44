"""Other policies in the same simulator: gang scheduling, and EDL's own autoscaler."""

from __future__ import annotations

from elasticdl.controller.core import Phase, Role, Start
from elasticdl.controller.core.resources import has_room, plus
from elasticdl.controller.sim.world import SimJob, World


def gang(world: World) -> None:
    """A job gets its maximum of workers at once or waits, first come, first served.

    Pending services preempt whole jobs, the newest first.
    """
    free = _free_soon(world)
    for pod in _pending_services(world):
        while not any(has_room(pod, room) for room in free.values()) and (newest := _newest(world)):
            _stop(world, newest)
            free = _free_soon(world)
        if node := next((name for name, room in free.items() if has_room(pod, room)), ""):
            free[node] = plus(free[node], pod, -1)
    for job in world.jobs.values():
        if job.finished_s is not None:
            _stop(world, job)
        elif not (job.pods or job.ordered):
            starts = _gang(job, free)
            if not starts:
                return
            for start in starts:
                world.order(start)


def _free_soon(world: World) -> dict[str, dict[str, int]]:
    """Room once all that leaves is gone and all that is meant for a node is there."""
    free = {name: dict(amounts) for name, amounts in world.nodes.items()}
    for pod in world.pods.values():
        if pod.node and pod.phase is not Phase.LEAVING:
            free[pod.node] = plus(free[pod.node], pod.request, -1)
    for job in world.jobs.values():
        for start in job.ordered.values():
            request = world.new_pod(start.job, start.role, start.pod).request
            free[start.node] = plus(free[start.node], request, -1)
    return free


def _pending_services(world: World) -> list[dict[str, int]]:
    return [dict(pod.request) for pod in world.pods.values() if not pod.job and pod.phase is Phase.PENDING]


def _newest(world: World) -> SimJob | None:
    running = [job for job in world.jobs.values() if any(pod.phase is not Phase.LEAVING for pod in job.pods.values())]
    return max(running, key=lambda job: job.spec.submit_s, default=None)


def _stop(world: World, job: SimJob) -> None:
    for name in [*job.ordered, *job.pods]:
        world.drain(job.spec.name, name)


def _gang(job: SimJob, free: dict[str, dict[str, int]]) -> list[Start]:
    """Place all pods of a job, each on the fullest node that holds it; empty if one has no place."""
    room = {name: dict(amounts) for name, amounts in free.items()}
    spec, starts = job.spec, []
    for role, group, pods in (
        (Role.PS, spec.ps, spec.ps.max),
        (Role.WORKER, spec.worker, spec.worker.max),
        (Role.MASTER, spec.master, 1),
    ):
        for number in range(pods):
            nodes = [name for name, amounts in room.items() if has_room(group.request, amounts)]
            if not nodes:
                return []
            node = min(nodes, key=lambda name: (sum(room[name].values()), name))
            room[node] = plus(room[node], group.request, -1)
            starts.append(Start(pod=f"{spec.name}-{role.value}-{number}", job=spec.name, role=role, node=node))
    free.update(room)
    return starts


class Edl:
    """EDL's autoscaler (PaddlePaddle/edl, pkg/autoscaler): trainers only, every 30 seconds, by sums of requests.

    The plain scheduler places all pods. Kubernetes chooses which trainers are deleted; they are not warned.
    """

    _period_s = 30.0
    _load_max = 0.97

    def __init__(self) -> None:
        self._parallelism: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._ticking = False

    def __call__(self, world: World) -> None:
        """Start new jobs at once, and remove what finished ones left."""
        if not self._ticking:
            self._ticking = True
            world.at(self._period_s, lambda: self._tick(world))
        for name, job in world.jobs.items():
            if job.finished_s is not None:
                self._parallelism.pop(name, None)
                _stop(world, job)
            elif name not in self._parallelism:
                spec = job.spec
                self._create(world, name, Role.MASTER, 1)
                self._create(world, name, Role.PS, spec.ps.max)
                self._parallelism[name] = max(1, spec.worker.min)
                self._create(world, name, Role.WORKER, self._parallelism[name])

    def _create(self, world: World, job: str, role: Role, pods: int) -> None:
        for _ in range(pods):
            self._next[job] = self._next.get(job, 0) + 1
            world.create(world.new_pod(job, role, f"{job}-{role.value}-{self._next[job]}"))

    def _tick(self, world: World) -> None:
        world.after(self._period_s, lambda: self._tick(world))
        before = dict(self._parallelism)
        self._scale(world)
        for name, number in self._parallelism.items():
            trainers = [pod for pod in world.jobs[name].pods.values() if pod.role is Role.WORKER]
            trainers = [pod for pod in trainers if pod.phase is not Phase.LEAVING]
            self._create(world, name, Role.WORKER, number - before[name])
            victims = sorted(trainers, key=lambda pod: (pod.phase is Phase.RUNNING, -pod.number))
            for pod in victims[: max(0, before[name] - number)]:
                pod.phase = Phase.LEAVING
                world.drained += 1
                world.after(1.0, lambda pod=pod: world.remove(pod))  # type: ignore[misc]
        world.changed = True

    def _scale(self, world: World) -> None:
        """Their loop: up by one in order of fulfillment, down by one above the load, until nothing changes."""
        total = sum(amounts.get("cpu", 0) for amounts in world.scenario.nodes)
        system = total - sum(amounts.get("cpu", 0) for amounts in world.nodes.values())
        used = system + sum(pod.request.get("cpu", 0) for pod in world.pods.values())
        idle = {name: dict(amounts) for name, amounts in world.free.items()}
        changed = True
        while changed:
            changed = False
            for name in sorted(self._parallelism, key=lambda name: self._fulfillment(world, name)):
                worker = world.jobs[name].spec.worker
                cpu = worker.request.get("cpu", 0)
                node = next((each for each, room in idle.items() if has_room(worker.request, room)), "")
                if self._parallelism[name] < worker.max and used + cpu <= self._load_max * total and node:
                    idle[node] = plus(idle[node], worker.request, -1)
                    used += cpu
                    self._parallelism[name] += 1
                    changed = True
            for name in sorted(self._parallelism, key=lambda name: -self._fulfillment(world, name)):
                worker = world.jobs[name].spec.worker
                if used > self._load_max * total and self._parallelism[name] > max(1, worker.min):
                    used -= worker.request.get("cpu", 0)
                    self._parallelism[name] -= 1
                    changed = True

    def _fulfillment(self, world: World, name: str) -> float:
        worker = world.jobs[name].spec.worker
        return (self._parallelism[name] - worker.min) / max(1, worker.max - worker.min)
