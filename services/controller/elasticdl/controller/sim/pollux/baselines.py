"""Tiresias and Optimus, as Pollux' authors have run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticdl.controller.sim.pollux.applications import Placement
from elasticdl.controller.sim.pollux.gangs import Gang
from elasticdl.controller.sim.pollux.jobs import SimJob, split


def packed(gpus: int, node_gpus: int = 4) -> Placement:
    """As few nodes as possible."""
    full, rest = divmod(gpus, node_gpus)
    return (node_gpus,) * full + ((rest,) if rest else ())


def place_missing(wanted: Mapping[str, int], held: dict[str, Gang], node_gpus: Sequence[int]) -> None:
    """Place jobs without GPUs, in the order given, each time on the node with the most free GPUs."""
    free = list(node_gpus)
    for nodes in held.values():
        for node in nodes:
            free[node] -= 1
    for name, number in wanted.items():
        if number and not held.get(name):
            chosen: list[int] = []
            while len(chosen) < number:
                node = max(range(len(free)), key=lambda each: free[each])
                taken = min(free[node], number - len(chosen))
                chosen += [node] * taken
                free[node] -= taken
            held[name] = tuple(chosen)


class Tiresias:
    """Two queues: a job leaves the first one after 16 hours of one GPU. Jobs get what they ask for, or wait."""

    _first_queue_gpu_s = 16 * 3600

    def __init__(self, node_gpus: Sequence[int], interval_s: int) -> None:
        self._node_gpus, self._interval_s = node_gpus, interval_s
        self._queues: tuple[list[str], list[str]] = ([], [])
        self._ran_s: dict[str, int] = {}
        self._runs: set[str] = set()

    def decide(self, _now_s: int, jobs: Mapping[str, SimJob], held: Mapping[str, Gang]) -> dict[str, Gang]:
        """The GPUs of each job from now on."""
        first, second = self._queues
        for queue in self._queues:
            queue[:] = [name for name in queue if name in jobs]
        for name, job in jobs.items():
            if name not in self._ran_s:
                self._ran_s[name] = 0
                first.append(name)
            elif name in self._runs:
                self._ran_s[name] += self._interval_s
                if name in first and self._ran_s[name] * job.spec.gpus >= self._first_queue_gpu_s:
                    first.remove(name)
                    second.append(name)
        free = sum(self._node_gpus)
        wanted: dict[str, int] = {}
        for name in (*first, *second):
            if (gpus := jobs[name].spec.gpus) <= free:
                wanted[name] = gpus
                free -= gpus
        self._runs = set(wanted)
        kept = {name: nodes for name, nodes in held.items() if name in wanted}
        place_missing(wanted, kept, self._node_gpus)
        return kept


class Optimus:
    """GPUs one by one to the job whose remaining time gets shortest. It knows how long each job still takes."""

    def __init__(self, node_gpus: Sequence[int]) -> None:
        self._node_gpus = node_gpus

    def decide(self, _now_s: int, jobs: Mapping[str, SimJob], held: Mapping[str, Gang]) -> dict[str, Gang]:
        """The GPUs of each job from now on."""
        free = sum(self._node_gpus)
        wanted = dict.fromkeys(jobs, 0)
        gains: dict[str, float] = {}
        for name, job in jobs.items():
            wanted[name] = min(free, 1)
            free -= wanted[name]
            gains[name] = self._gain(job, wanted[name]) if wanted[name] and free else 0.0
        while free and (best := max(gains, key=lambda name: gains[name])) and gains[best] > 0:
            wanted[best] += 1
            free -= 1
            gains[best] = self._gain(jobs[best], wanted[best]) if free else 0.0
        kept = {name: nodes for name, nodes in held.items() if name in jobs and len(nodes) == wanted[name]}
        place_missing({name: wanted[name] for name in sorted(jobs, key=wanted.__getitem__)}, kept, self._node_gpus)
        return kept

    def _gain(self, job: SimJob, gpus: int) -> float:
        """Seconds that one more GPU saves until the job has finished."""
        application = job.application
        most = 1 if application.name == "ncf" else job.spec.batch_size // application.local_min
        if gpus + 1 > most:
            return 0.0
        return (self._step_s(job, gpus) - self._step_s(job, gpus + 1)) * self._steps_left(job)

    @staticmethod
    def _step_s(job: SimJob, gpus: int) -> float:
        local, extra = split(job.application, job.spec.batch_size, gpus)
        step_s, sync_s = job.application.step_s(packed(gpus), local)
        return step_s + (step_s - sync_s) * extra

    @staticmethod
    def _steps_left(job: SimJob) -> float:
        application, batch_size = job.application, job.spec.batch_size
        last = application.epochs - 1
        if last <= job.epoch:
            return 1.0
        return application.steps(batch_size, last) - application.steps(batch_size, job.epoch)
