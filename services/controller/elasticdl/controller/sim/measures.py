"""What a simulation measures: waiting, utilisation, fairness and the bound beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from elasticdl.controller.core import Phase, Role
from elasticdl.controller.sim.bound import packing_bound
from elasticdl.controller.sim.world import SimJob, World

_SAMPLE_S = 1.0
_WHOLE = "whole run"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One job."""

    name: str
    submit_s: float
    pending_s: float
    """From its submission to its first training worker; until the end if there was none."""
    started: bool
    first_worker_s: float | None
    """Until its first worker pod ran, which may have waited for its ps: what EDL's report calls pending."""
    finished_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """A service that asked for more pods."""

    service: str
    second: float
    wanted: int
    whole_s: float | None
    """Until all pods ran. None: never before the next step or the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """Means over a part of the run. CPU as fractions of all CPU."""

    name: str
    requested: float
    """CPU that pods on nodes request, as EDL's report counts utilisation."""
    bound: float
    """Most of it that any placement reaches, with this number of ps and these pods of services."""
    training: float
    """CPU of workers that train."""
    training_bound: float
    jain: float
    """Fairness of the numbers of training workers; 1: all submitted jobs have the same."""
    below_min: float
    """Jobs with fewer training workers than their minimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run."""

    scenario: str
    policy: str
    seed: int
    end_s: float
    pending_mean_s: float
    pending_worst_s: float
    drained: int
    """Pods of jobs that had to leave before their job finished."""
    windows: tuple[WindowResult, ...]
    steps: tuple[StepResult, ...]
    jobs: tuple[JobResult, ...]
    samples: tuple[tuple[float, float, float], ...] = ()
    """(second, requested CPU, CPU of workers that train), the last two as fractions of all CPU."""


@dataclass(slots=True)
class _Sums:
    """Of one window."""

    start_s: float
    end_s: float
    seconds: float = 0.0
    requested: float = 0.0
    training: float = 0.0
    samples: int = 0
    bound: float = 0.0
    training_bound: float = 0.0
    jain: float = 0.0
    below_min: float = 0.0


@dataclass(slots=True)
class _Step:
    service: str
    second: float
    wanted: int
    whole_s: float | None = None
    over: bool = False


@dataclass(slots=True)
class Measures:
    """Watches a world."""

    world: World
    windows: dict[str, _Sums] = field(default_factory=dict)
    steps: list[_Step] = field(default_factory=list)
    samples: list[tuple[float, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start to sample."""
        self.windows = {_WHOLE: _Sums(0.0, float("inf"))}
        for name, (start, end) in self.world.scenario.windows.items():
            self.windows[name] = _Sums(start, end)
        for service in self.world.scenario.services:
            for (_, before), (second, number) in zip(service.replicas, service.replicas[1:], strict=False):
                if number > before:
                    self.steps.append(_Step(service.name, second, number))
        self.world.at(_SAMPLE_S, self._sample)

    def advance(self, second: float) -> None:
        """Count the time until a second, in which nothing changes."""
        world = self.world
        requested, training = self._used()
        for sums in self.windows.values():
            seconds = max(0.0, min(second, sums.end_s) - max(world.now_s, sums.start_s))
            sums.seconds += seconds
            sums.requested += requested * seconds
            sums.training += training * seconds
        for step in self.steps:
            if step.second < world.now_s and step.whole_s is None and not step.over:
                self._watch(step)

    def _watch(self, step: _Step) -> None:
        if self.world.wanted[step.service] != step.wanted:
            step.over = True
        elif sum(pod.phase is Phase.RUNNING for pod in self.world.services[step.service]) == step.wanted:
            step.whole_s = self.world.now_s - step.second

    def _used(self) -> tuple[int, int]:
        """CPU that pods on nodes request now, and that of workers that train."""
        requested = self._total() - sum(room.get("cpu", 0) for room in self.world.free.values())
        training = sum(job.workers * job.spec.worker.request.get("cpu", 0) for job in self.world.jobs.values())
        return requested, training

    def _total(self) -> int:
        return sum(amounts.get("cpu", 0) for amounts in self.world.scenario.nodes)

    def _sample(self) -> None:
        world = self.world
        world.after(_SAMPLE_S, self._sample)
        used, total = self._used(), self._total()
        self.samples.append((world.now_s, used[0] / total, used[1] / total))
        active = [job for job in world.jobs.values() if job.finished_s is None]
        windows = [sums for sums in self.windows.values() if sums.start_s <= world.now_s <= sums.end_s]
        requested, training = self._bounds(active)
        workers = [job.workers for job in active]
        for sums in windows:
            sums.samples += 1
            sums.bound += requested
            sums.training_bound += training
            sums.jain += jain(workers)
            sums.below_min += sum(job.workers < max(1, job.spec.worker.min) for job in active)

    def _bounds(self, active: Sequence[SimJob]) -> tuple[float, float]:
        """Bounds of the requested and of the training CPU now."""
        world = self.world
        rooms = {name: amounts.get("cpu", 0) for name, amounts in world.nodes.items()}
        for pod in world.pods.values():
            if not pod.job and pod.bound:
                rooms[pod.node] -= pod.request.get("cpu", 0)
        others = self._total() - sum(rooms.values())
        masters = sum(job.spec.master.request.get("cpu", 0) for job in active)
        shapes = {(job.spec.worker.request.get("cpu", 0), job.spec.ps.request.get("cpu", 0)) for job in active}
        ps_pods = sum(
            pod.role is Role.PS and pod.node != "" and pod.phase is not Phase.LEAVING
            for job in active
            for pod in job.pods.values()
        )
        most = sum(job.spec.worker.max * job.spec.worker.request.get("cpu", 0) for job in active)
        if len(shapes) == 1 and (shape := shapes.pop())[0]:
            worker, ps = shape
            counts = Counter(rooms.values())
            workers = min(most, packing_bound(counts, worker, ps, ps_pods, False))
            both = min(most + ps * ps_pods, packing_bound(counts, worker, ps, ps_pods, True))
        else:  # Of pods with several shapes only the sums are known.
            held = sum(job.spec.ps.request.get("cpu", 0) * job.spec.ps.min for job in active)
            workers = min(most, sum(rooms.values()) - held)
            both = min(most + held, sum(rooms.values()))
        total = self._total()
        return min(total, others + masters + both) / total, workers / total

    def result(self, policy: str, seed: int) -> Result:
        """What was measured."""
        world = self.world
        jobs = tuple(_job_result(job, world.now_s) for job in world.jobs.values())
        pending = [job.pending_s for job in jobs] or [0.0]
        return Result(
            scenario=world.scenario.name,
            policy=policy,
            seed=seed,
            end_s=world.now_s,
            pending_mean_s=sum(pending) / len(pending),
            pending_worst_s=max(pending),
            drained=world.drained,
            windows=tuple(self._window(name, sums) for name, sums in self.windows.items()),
            steps=tuple(
                StepResult(service=step.service, second=step.second, wanted=step.wanted, whole_s=step.whole_s)
                for step in self.steps
            ),
            jobs=jobs,
            samples=tuple(self.samples),
        )

    def _window(self, name: str, sums: _Sums) -> WindowResult:
        seconds, samples, total = max(sums.seconds, 1e-9), max(sums.samples, 1), self._total()
        return WindowResult(
            name=name,
            requested=sums.requested / seconds / total,
            bound=sums.bound / samples,
            training=sums.training / seconds / total,
            training_bound=sums.training_bound / samples,
            jain=sums.jain / samples,
            below_min=sums.below_min / samples,
        )


def _job_result(job: SimJob, now_s: float) -> JobResult:
    started = job.started_s is not None
    return JobResult(
        name=job.spec.name,
        submit_s=job.spec.submit_s,
        pending_s=(job.started_s if job.started_s is not None else now_s) - job.spec.submit_s,
        started=started,
        first_worker_s=None if job.first_worker_s is None else job.first_worker_s - job.spec.submit_s,
        finished_s=job.finished_s,
    )


def jain(numbers: Sequence[float]) -> float:
    """Jain's fairness index: 1 if all are equal, 1/n if one has everything."""
    squares = sum(number * number for number in numbers)
    return sum(numbers) ** 2 / (len(numbers) * squares) if squares else 1.0
