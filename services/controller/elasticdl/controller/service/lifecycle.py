"""One TrainingJob: where it stands, how the core sees it, and what is to be done for it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any

from elasticdl.cli.jobs.handle import Condition
from elasticdl.cli.kubernetes.condition import condition_of
from elasticdl.cli.kubernetes.manifests.resources import parse_resources
from elasticdl.controller.core import Constraint, Drain, Group, Job, JobTarget, Role, Start
from elasticdl.controller.core.resources import Resources
from elasticdl.controller.service.job_log import JobFacts
from elasticdl.controller.service.limit_ranges import LimitRange, refusal, with_defaults
from elasticdl.controller.service.observing import SeenPod, created_s, resources_of
from elasticdl.controller.service.placement import constraint_of_role
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import SUSPENDED
from elasticdl.shared.kubernetes.training_job import RoleSpec, TrainingJobSpec
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import JOB_NAME_CHARS_MAX, JobId

_SUFFIX_CHARS = 6


class Phase(Enum):
    """Where a TrainingJob stands."""

    INVALID = "Invalid"
    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def is_final(self) -> bool:
        """Whether nothing happens any more."""
        return self in (Phase.INVALID, Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create the objects of the job."""

    workers: int
    ps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Ask the master for other numbers of workers and ps; ``leaving``: numbers of workers that go first."""

    workers: int
    ps: int
    leaving: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """Ask the master to stop, so that all pods go; the job can be resumed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Ask the master to stop for good."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Create the objects of the next run."""

    workers: int
    ps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Delete what is left of a creation that was interrupted."""


Step = Create | Scale | Suspend | Stop | Resume | Discard


@dataclass(frozen=True, kw_only=True)
class Case:
    """A TrainingJob and everything that is known of it.

    Attributes:
        key: ``NAMESPACE/NAME``.
        manifest: the TrainingJob.
        spec: what it asks for; None: it is invalid, for the reason in ``problem``.
        job: its Job; None: there is none.
        pods: that hold room or wait for some.
        masters: pods of its masters, ended ones, too.
        facts: by the job's log; None: not known yet.
        ordered: the workers and ps that were asked for last; None: nothing was since this controller has started.
        leaving: numbers of the workers that were asked to leave with it.
        priority: of its priority class.
        weight: of its priority class: its part of the spare room, relative to other jobs.
        limit_ranges: of its namespace.
    """

    key: str
    manifest: Manifest
    spec: TrainingJobSpec | None
    problem: str = ""
    job: Manifest | None = None
    pods: Sequence[SeenPod] = ()
    masters: Sequence[Manifest] = ()
    facts: JobFacts | None = None
    ordered: tuple[int, int] | None = None
    leaving: frozenset[int] = frozenset()
    priority: int = 0
    weight: float = 1.0
    refused_s: float | None = None
    limit_ranges: Sequence[LimitRange] = ()

    @cached_property
    def condition(self) -> Condition | None:
        """What the Job and the pods of its masters say."""
        if self.job is None:
            return None
        return condition_of(self.job, self.masters)

    @cached_property
    def phase(self) -> Phase:
        """Where it stands. What its status says of an end outlives the Job."""
        former = (self.manifest.get("status") or {}).get("phase", "")
        if self.spec is None:
            return Phase.INVALID
        condition = self.condition
        if condition is None:
            ended = next((phase for phase in Phase if phase.is_final and phase.value == former), None)
            return ended if ended and ended is not Phase.INVALID else Phase.WAITING
        if not condition.is_running:
            return self._end(condition)
        if self.is_suspended_by_us:
            return Phase.SUSPENDING
        trains = self.facts is not None and self.facts.progress.state is not JobState.STARTING
        return Phase.RUNNING if trains else Phase.STARTING

    @property
    def is_suspended_by_us(self) -> bool:
        """Whether a controller has asked this run to stop, so that it continues later."""
        annotations = self.job["metadata"].get("annotations") or {} if self.job is not None else {}
        return SUSPENDED in annotations

    @property
    def wanted(self) -> tuple[int, int]:
        """The workers and ps that the job is about to have."""
        if self.ordered is not None:
            return self.ordered
        if self.facts is not None:
            return self.facts.wanted
        return (max(1, self.spec.worker.min), self.spec.ps.min) if self.spec else (0, 0)

    def _end(self, condition: Condition) -> Phase:
        if condition.state == JobState.SUCCEEDED.value:
            return Phase.SUCCEEDED
        if condition.state != JobState.STOPPED.value:
            return Phase.FAILED
        return Phase.SUSPENDED if self.is_suspended_by_us else Phase.STOPPED


def job_id(manifest: Manifest) -> JobId:
    """The id of a TrainingJob's job: always the same, so that a job is never created twice."""
    metadata = manifest["metadata"]
    suffix = hashlib.sha256(metadata["uid"].encode()).hexdigest()[:_SUFFIX_CHARS]
    name = metadata["name"].replace(".", "-")[:JOB_NAME_CHARS_MAX].rstrip("-")
    return JobId(f"{name}-{suffix}")


def core_job(case: Case) -> Job | None:
    """A TrainingJob as the core sees it; None: it needs nothing any more."""
    spec, phase = case.spec, case.phase
    if spec is None or (phase.is_final and not case.pods):
        return None
    ranges = case.limit_ranges
    requests, refusals = {}, []
    for role in Role:
        own, limits = with_defaults(*_amounts_of(role.value, spec), ranges)
        requests[role] = {**own, "pods": 1}
        refusals.append(refusal(role.value, own, limits, ranges))
    return Job(
        name=case.key,
        master=Group(request=requests[Role.MASTER], constraint=constraint_of_role(spec, spec.master)),
        ps=_group(spec.ps, requests[Role.PS], constraint_of_role(spec, spec.ps)),
        worker=_group(spec.worker, requests[Role.WORKER], constraint_of_role(spec, spec.worker)),
        created_s=created_s(case.manifest),
        priority=case.priority,
        weight=case.weight,
        queue=spec.queue,
        namespace=case.manifest["metadata"]["namespace"],
        finished=phase.is_final,
        suspended=spec.suspend,
        remaining_s=case.facts.remaining_s if case.facts else None,
        **_measured(case.facts, requests[Role.PS]),
        refused_s=case.refused_s,
        forbidden=next(filter(None, refusals), ""),
    )


def _measured(facts: JobFacts | None, ps_request: Resources) -> dict[str, Any]:
    """What was measured, as the core has it. A ps that uses the CPU that it requests is busy."""
    if facts is None:
        return {}
    load, milli_cpus = facts.ps_load, ps_request.get("cpu", 0)
    if load is None or not milli_cpus:
        return {"curve": facts.curve}
    busy = min(1.0, 1000 * load.cpus / milli_cpus)
    return {"curve": facts.curve, "ps_load": busy, "ps_load_workers": load.workers, "ps_load_ps": load.ps}


def _amounts_of(role: str, spec: TrainingJobSpec) -> tuple[Resources, Resources]:
    """Requests and limits of a pod of the job."""
    return _parsed(role, getattr(spec.pods, f"{role}_resource_request"), getattr(spec.pods, f"{role}_resource_limit"))


@lru_cache(maxsize=4096)
def _parsed(role: str, request: str, limit: str) -> tuple[Resources, Resources]:
    """Every turn asks for the requests of all jobs, which are the same few texts."""
    resources = parse_resources(role, request, limit)
    return resources_of(resources.requests, round), resources_of(resources.limits, round)


def _group(role: RoleSpec, request: Resources, constraint: Constraint) -> Group:
    if role.replicas is not None:  # A person has chosen the number.
        number = min(max(role.replicas, role.min), role.max)
        return Group(request=request, min=number, max=number, constraint=constraint)
    return Group(request=request, min=role.min, max=role.max, constraint=constraint)


def expected_orders(case: Case, nodes: dict[Role, list[str]]) -> list[Start | Drain]:
    """What was ordered and is not seen yet: pods that a master is about to create, to place or to drain.

    Args:
        nodes: by role, the nodes that the core has chosen for the pods that it started. Those that no pod is missing
            for any more are removed.
    """
    if case.phase in (Phase.SUSPENDING, Phase.SUSPENDED) or case.phase.is_final:
        return [Drain(pod=each.pod.name, job=case.key) for each in case.pods if each.is_placed]
    if case.job is None:
        return []
    workers, ps = case.wanted
    orders: list[Start | Drain] = []
    for role, wanted in ((Role.MASTER, 1), (Role.PS, ps), (Role.WORKER, workers)):
        placed = [each for each in case.pods if each.pod.role is role and each.is_placed]
        chosen = nodes.get(role, [])
        del chosen[max(0, wanted - len(placed)) :]
        orders += [
            Start(pod=f"{case.key}/{role.value}-expected-{number}", job=case.key, role=role, node=node)
            for number, node in enumerate(chosen)
        ]
        leaves_first = lambda each, role=role: (role is Role.WORKER and _is_leaving(case, each), each.number)  # noqa: E731
        surplus = sorted(placed, key=leaves_first, reverse=True)[: max(0, len(placed) - wanted)]
        orders += [Drain(pod=each.pod.name, job=case.key) for each in surplus]
    return orders


def _is_leaving(case: Case, worker: SeenPod) -> bool:
    """Whether a worker was asked to leave, by the last request or by one that the master has recorded."""
    return worker.number in case.leaving or (case.facts is not None and worker.number in case.facts.left_out)


def _leaving(case: Case, target: JobTarget) -> tuple[int, ...]:
    """The numbers of the workers that the core has chosen to leave."""
    chosen = set(target.drains)
    return tuple(sorted(each.number for each in case.pods if each.pod.role is Role.WORKER and each.pod.name in chosen))


def _is_late(case: Case, spec: TrainingJobSpec, now_s: float) -> bool:
    started = (case.manifest.get("status") or {}).get("startTime")
    if spec.deadline_s is None or not started:
        return False
    return now_s > datetime.fromisoformat(started).timestamp() + spec.deadline_s


def next_step(case: Case, target: JobTarget | None, now_s: float) -> Step | None:
    """What is to be done now, in seconds since the epoch; None: nothing."""
    spec, phase = case.spec, case.phase
    if spec is None or phase.is_final or phase is Phase.SUSPENDING or target is None:
        return None
    if case.job is not None and case.job["spec"].get("suspend") and case.phase is Phase.STARTING:
        return Discard()  # Its creator has ended between the Job and what the Job needs.
    if phase in (Phase.STARTING, Phase.RUNNING) and _is_late(case, spec, now_s):
        return Stop(reason=f"spec.activeDeadlineSeconds: it was active for {spec.deadline_s} s")
    numbers = {"workers": max(1, target.workers), "ps": target.ps}
    if phase is Phase.WAITING:
        return Create(**numbers) if target.admitted else None
    if phase is Phase.SUSPENDED:
        return Resume(**numbers) if target.admitted else None
    if not target.admitted:
        return Suspend(reason=target.reason)
    # Before its log is known, a job is not asked for anything: it may not have a master yet.
    if case.facts is not None and (target.workers, target.ps) != case.wanted:
        return Scale(**numbers, leaving=_leaving(case, target))
    return None
