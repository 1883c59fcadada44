"""A fleet at any decision of its log, and how well it was used over time, as JSON values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.controller.core import Job, JobTarget, Phase, Pod, Role
from elasticdl.controller.core.resources import plus
from elasticdl.controller.history.records import Record
from elasticdl.controller.history.replay import Fleet
from elasticdl.shared.words import count

INTERVAL = 500
"""Decisions between two copies of the fleet: any decision is a short fold away."""
DECISIONS_MAX = ROWS_MAX = 200
_CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How a fleet is used after a decision.

    Attributes:
        requested: CPU that pods on nodes request, as a fraction of all CPU.
        useful: CPU of workers that train, likewise. A worker counts by what it adds to the job's throughput, compared
            with the job's first one.
        waiting: jobs that have no place yet.
        admitted: jobs that have one.
    """

    number: int
    time_s: float
    requested: float
    useful: float
    waiting: int
    admitted: int


class FleetHistory:
    """A log that is read from its beginning, and the fleet at each of its decisions."""

    def __init__(self, *, interval: int = INTERVAL) -> None:
        self.samples: list[Sample] = []
        self._interval = interval
        self._records: list[Record] = []
        self._copies: list[Fleet] = []
        self._fleet = Fleet()
        self._usage = _Usage(self._fleet)

    def add(self, record: Record) -> None:
        """Take the next record."""
        self._records.append(record)
        self._usage.add(record)
        self.samples.append(self._usage.sample())
        if len(self._records) % self._interval == 0:
            self._copies.append(_copy(self._fleet))

    def at(self, number: int) -> Fleet:
        """The fleet after a decision, or after the last one if the log is shorter."""
        number = min(number, len(self._records))
        copies = min(number // self._interval, len(self._copies))  # Another thread may be adding a record.
        fleet = _copy(self._copies[copies - 1]) if copies else Fleet()
        for record in self._records[copies * self._interval : number]:
            fleet.add(record)
        return fleet


def overview(fleet: Fleet) -> dict[str, Any]:
    """Resources, nodes, jobs and the last decisions.

    ``resources`` are rows of (name, allocatable, requested by jobs, by others, useful work of workers); CPU in
    thousandths, memory in MiB. Of nodes, jobs and decisions the first 200 are listed, jobs that wait first.
    """
    view = fleet.view
    jobs = sorted(_jobs(fleet), key=lambda row: (not row["waiting"], -row["priority"], row["job"]))
    nodes = _nodes(fleet)
    return {
        "number": fleet.number,
        "time_s": fleet.time_s,
        "resources": list(_resources(fleet)),
        "nodes": nodes[:ROWS_MAX],
        "node_count": len(view.nodes),
        "pod_count": len(view.pods),
        "jobs": jobs[:ROWS_MAX],
        "job_count": len(jobs),
        "pending": [len(view.starts), len(view.drains)],
        "decisions": [
            {"number": number, "time_s": time_s, "job": target.job, "what": what(target), "reason": target.reason}
            for number, time_s, target in fleet.decided[: -DECISIONS_MAX - 1 : -1]
        ],
        "decision_count": len(fleet.decided),
    }


def what(target: JobTarget) -> str:
    """A target in words."""
    parts = [f"starts {len(target.starts)}"] if target.starts else []
    parts += [f"drains {len(target.drains)}"] if target.drains else []
    numbers = f"{count(target.workers, 'worker')}, {target.ps} ps" if target.admitted else "no pods"
    return f"{numbers} ({', '.join(parts)})" if parts else numbers


def useful(job: Job | None, workers: int) -> float:
    """Number of workers that would train as fast if each added as much as the first one."""
    first = job.curve.speed(1) if job else 0.0
    return min(workers, job.curve.speed(workers) / first) if job and first > 0 else workers


class _Usage:
    """Keeps sums while records are added: fleets have thousands of pods, of which a record changes a few."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._total = self._requested = 0
        self._workers: dict[str, list[int]] = {}
        """Job -> its running workers, and the CPU that they request."""
        self._useful: dict[str, float] = {}
        self._waiting: set[str] = set()

    def add(self, record: Record) -> None:
        """Add a record to the fleet, and to the sums."""
        view, changes = self._fleet.view, record.changes
        if changes.nodes:  # They change seldom, and with one all of its pods.
            self._fleet.add(record)
            self._total = sum(node.allocatable.get(_CPU, 0) for node in view.nodes.values())
            self._requested, self._workers, self._useful = 0, {}, {}
            for pod in view.pods.values():
                self._count(pod, 1)
        else:
            for name in changes.pods:
                self._count(view.pods.get(name), -1)
            self._fleet.add(record)
            for name in changes.pods:
                self._count(view.pods.get(name), 1)
        for name in {*changes.jobs, *(pod.job for pod in changes.pods.values() if pod), *self._workers}:
            number, cpu = self._workers.get(name, (0, 0))
            self._useful[name] = cpu * useful(view.jobs.get(name), number) / number if number else 0.0
        for name in {*changes.jobs, *record.targets}:
            (self._waiting.add if _waits(self._fleet, name) else self._waiting.discard)(name)

    def _count(self, pod: Pod | None, sign: int) -> None:
        if pod is None or not _holds_room(self._fleet, pod):
            return
        cpu = sign * pod.request.get(_CPU, 0)
        self._requested += cpu
        if _trains(pod):
            sums = self._workers.setdefault(pod.job, [0, 0])
            sums[0] += sign
            sums[1] += cpu
            if not sums[0]:
                del self._workers[pod.job]
                self._useful[pod.job] = 0.0

    def sample(self) -> Sample:
        """The sums as fractions."""
        fleet, total = self._fleet, max(1, self._total)
        return Sample(
            number=fleet.number,
            time_s=fleet.time_s,
            requested=self._requested / total,
            useful=sum(self._useful.values()) / total,
            waiting=len(self._waiting),
            admitted=sum(target.admitted for target in fleet.targets.values()),
        )


def _holds_room(fleet: Fleet, pod: Pod) -> bool:
    """Whether a node has the pod. A pending one may be meant for a node that has no room yet."""
    return pod.node in fleet.view.nodes and pod.phase is not Phase.PENDING


def _trains(pod: Pod) -> bool:
    return bool(pod.job) and pod.role is Role.WORKER and pod.phase is Phase.RUNNING


def _waits(fleet: Fleet, name: str) -> bool:
    job, target = fleet.view.jobs.get(name), fleet.targets.get(name)
    return bool(job and target and not (target.admitted or job.finished or job.suspended))


def _resources(fleet: Fleet) -> Iterator[tuple[str, int, int, int, float]]:
    view = fleet.view
    allocatable, jobs, others, trains = dict[str, int](), dict[str, int](), dict[str, int](), dict[str, float]()
    for node in view.nodes.values():
        allocatable = plus(allocatable, node.allocatable)
    workers: dict[str, list[Pod]] = {}
    for pod in view.pods.values():
        if not _holds_room(fleet, pod):
            continue
        if pod.job:
            jobs = plus(jobs, pod.request)
        else:
            others = plus(others, pod.request)
        if _trains(pod):
            workers.setdefault(pod.job, []).append(pod)
    for name, pods in workers.items():
        part = useful(view.jobs.get(name), len(pods)) / len(pods)
        for pod in pods:
            for resource, amount in pod.request.items():
                trains[resource] = trains.get(resource, 0.0) + part * amount
    for name, amount in sorted(allocatable.items()):
        yield name, amount, jobs.get(name, 0), others.get(name, 0), round(trains.get(name, 0.0), 3)


def _nodes(fleet: Fleet) -> list[dict[str, Any]]:
    used: dict[str, Mapping[str, int]] = {}
    pods: dict[str, int] = {}
    for pod in fleet.view.pods.values():
        if _holds_room(fleet, pod):
            used[pod.node] = plus(used.get(pod.node, {}), pod.request)
            pods[pod.node] = pods.get(pod.node, 0) + 1
    return [
        {
            "name": name,
            "pods": pods.get(name, 0),
            "used": [[each, used.get(name, {}).get(each, 0), most] for each, most in sorted(node.allocatable.items())],
        }
        for name, node in sorted(fleet.view.nodes.items())
    ]


def _jobs(fleet: Fleet) -> Iterator[dict[str, Any]]:
    running: dict[tuple[str, Role], int] = {}
    for pod in fleet.view.pods.values():
        if pod.role is not None and pod.phase is Phase.RUNNING:
            running[pod.job, pod.role] = running.get((pod.job, pod.role), 0) + 1
    for name, job in fleet.view.jobs.items():
        target = fleet.targets.get(name)
        yield {
            "job": name,
            "priority": job.priority,
            "queue": job.queue,
            "waiting": _waits(fleet, name),
            "finished": job.finished,
            "suspended": job.suspended,
            "workers": [running.get((name, Role.WORKER), 0), target.workers if target else 0],
            "ps": [running.get((name, Role.PS), 0), target.ps if target else 0],
            "since_s": job.created_s,
            "remaining_s": job.remaining_s,
            "reason": target.reason if target else "",
        }


def _copy(fleet: Fleet) -> Fleet:
    """Another fleet with the same values, which never change."""
    copied = Fleet(number=fleet.number, time_s=fleet.time_s, targets=dict(fleet.targets), decided=list(fleet.decided))
    view, known = copied.view, fleet.view
    view.nodes, view.pods, view.jobs = dict(known.nodes), dict(known.pods), dict(known.jobs)
    view.starts, view.drains = dict(known.starts), dict(known.drains)
    view.queues, view.budgets = known.queues, known.budgets
    view.pods_of = {job: set(pods) for job, pods in known.pods_of.items()}
    return copied
