"""Nodes and pods as the core sees them, from their manifests. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from elasticdl.controller.core import ANYWHERE, Node, Phase, Pod, Role
from elasticdl.controller.core.resources import Resources, plus
from elasticdl.controller.service.placement import constraint_of, taints_of
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import COMPONENT_LABEL, JOB_LABEL, NAME_LABEL, POD_LABEL
from elasticdl.shared.kubernetes.pod_status import start_problem
from elasticdl.shared.kubernetes.quantities import amount
from elasticdl.shared.names import pod_number

T = TypeVar("T")
K = TypeVar("K")
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPod:
    """A pod that holds room or waits for some.

    Attributes:
        pod: as the core sees it; its job is the id of the job.
        namespace: of the pod.
        number: of a worker or ps, from 0; -1: it has none.
        problem: why it does not start; empty: nothing is wrong.
    """

    pod: Pod
    namespace: str
    number: int = -1
    problem: str = ""

    @property
    def is_placed(self) -> bool:
        """Whether it stays on a node."""
        return bool(self.pod.node) and self.pod.phase is not Phase.LEAVING


def read_node(node: Manifest) -> Node | None:
    """A node that takes pods; None: it does not."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    if not is_ready or spec.get("unschedulable") or "deletionTimestamp" in node["metadata"]:
        return None
    amounts = resources_of(status.get("allocatable") or {}, math.floor)
    return Node(
        name=node["metadata"]["name"],
        allocatable=amounts,
        labels=node["metadata"].get("labels") or {},
        taints=taints_of(node),
    )


def read_pod(pod: Manifest) -> SeenPod | None:
    """A pod; None: it has ended and holds no room."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    metadata, spec = pod["metadata"], pod["spec"]
    labels = metadata.get("labels") or {}
    is_ours = labels.get(NAME_LABEL) == "elasticdl" and JOB_LABEL in labels
    role = _role(labels) if is_ours else None
    problem = start_problem(pod)
    return SeenPod(
        pod=Pod(
            name=f"{metadata['namespace']}/{metadata['name']}",
            request=request_of(spec),
            node=spec.get("nodeName") or "",
            phase=_phase(pod, is_stuck=problem is not None and problem.is_final),
            priority=spec.get("priority") or 0,
            job=labels[JOB_LABEL] if role else "",
            role=role,
            constraint=ANYWHERE if role else constraint_of(spec),
        ),
        namespace=metadata["namespace"],
        number=pod_number(labels[POD_LABEL]) if role and POD_LABEL in labels else -1,
        problem=problem.text if problem else "",
    )


def request_of(spec: Manifest) -> Resources:
    """What the scheduler counts for a pod: all containers at once, or the largest init container, and one pod."""
    total: Resources = {}
    for container in spec["containers"]:
        total = plus(total, _requests(container))
    for container in spec.get("initContainers") or ():
        alone = _requests(container)
        if container.get("restartPolicy") == "Always":
            total = plus(total, alone)
        else:
            total = {name: max(total.get(name, 0), alone.get(name, 0)) for name in {*total, *alone}}
    return {**plus(total, resources_of(spec.get("overhead") or {}, math.ceil)), "pods": 1}


def resources_of(quantities: Mapping[str, str], rounded: Callable[[float], int]) -> Resources:
    """Quantities of Kubernetes in the units of the core: thousandths of a CPU, MiB, else pieces."""
    # 0.1 CPUs are 100.00000000000001 thousandths.
    return {name: rounded(round(amount(text) * _units(name), 6)) for name, text in quantities.items()}


def owned(pod: Pod, job: str, former: tuple[Pod, Pod] | None) -> tuple[Pod, Pod]:
    """A pod, and the same of a TrainingJob or of none: then it is one of those that the controller works around.

    Args:
        former: the last answer, which is repeated if nothing has changed.
    """
    if former is not None and former[0] is pod and former[1].job == job:
        return former
    return pod, replace(pod, job=job, role=pod.role if job else None)


def created_s(manifest: Manifest) -> float:
    """When an object was created, seconds since the epoch."""
    return datetime.fromisoformat(manifest["metadata"]["creationTimestamp"]).timestamp()


def _units(name: str) -> float:
    if name == "cpu":
        return 1000.0
    is_size = name in ("memory", "ephemeral-storage", "storage") or name.startswith("hugepages-")
    return 1 / _MEBIBYTE if is_size else 1.0


def _requests(container: Manifest) -> Resources:
    resources = container.get("resources") or {}
    # A container without a request for something that it limits requests its limit.
    return resources_of({**(resources.get("limits") or {}), **(resources.get("requests") or {})}, math.ceil)


def _role(labels: Mapping[str, str]) -> Role | None:
    component = labels.get(COMPONENT_LABEL, "")
    return Role(component) if component in {role.value for role in Role} else None


def _phase(pod: Manifest, *, is_stuck: bool) -> Phase:
    if "deletionTimestamp" in pod["metadata"]:
        return Phase.LEAVING
    if not pod["spec"].get("nodeName"):
        return Phase.PENDING
    if is_stuck:
        return Phase.STUCK
    return Phase.RUNNING if (pod.get("status") or {}).get("phase") == "Running" else Phase.STARTING


def job_of(pod: Manifest) -> tuple[str, str]:
    """Namespace and job of a pod of a job."""
    return pod["metadata"]["namespace"], pod["metadata"]["labels"].get(JOB_LABEL, "")


def grouped(objects: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The objects by a key, such as (namespace, job id) of pods."""
    found: dict[K, list[T]] = {}
    for each in objects:
        found.setdefault(key(each), []).append(each)
    return found
