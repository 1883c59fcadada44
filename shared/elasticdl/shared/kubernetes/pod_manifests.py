"""The manifest of a worker's or ps' pod: a template, and what differs from pod to pod."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import MEMORY_RAISES, NOTE, pod_labels, pod_object_name
from elasticdl.shared.kubernetes.quantities import format_bytes, parse_bytes
from elasticdl.shared.kubernetes.templates import PodTemplates
from elasticdl.shared.names import Incarnation, JobId, PodName, Service, pod_number
from elasticdl.shared.pods.ports import EARLY_SEQ
from elasticdl.shared.process.running_batches import TERMINATION_MESSAGE_VARIABLE
from elasticdl.shared.process.settings import variable

MEMORY_RAISE = 1.5
MASTER_WAIT_S = 120
"""Seconds after which a pod that was created before its master frees its place. The master creates it again."""
TERMINATION_MESSAGE = "/dev/termination-log"
MESSAGE_BYTES_MAX = 4096
"""The most that Kubernetes keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    """What all pods of one run of a job have in common.

    Attributes:
        owner: the ``ownerReference`` to the batch Job, which removes the pods when it is deleted.
    """

    job: JobId
    run: Incarnation
    owner: Manifest
    templates: PodTemplates


def owner_reference(owner: Manifest, kind: kinds.Kind = kinds.JOB) -> Manifest:
    """The owner of a job's objects: its batch Job; that of the Job may be a TrainingJob."""
    metadata = owner["metadata"]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": False,
        "blockOwnerDeletion": False,
    }


def pod_manifest(
    job: ClusterJob,
    pod: PodName,
    service: Service,
    creation_seq: int,
    memory_raises: int = 0,
    *,
    is_spare: bool = False,
) -> Manifest:
    """The manifest of a pod; ``is_spare``: see ``StartPod``."""
    template = deepcopy(job.templates.template(service))
    metadata = template.setdefault("metadata", {})
    metadata["name"] = pod_object_name(job.job, pod, creation_seq)
    metadata["labels"] = metadata.get("labels", {}) | pod_labels(job.job, pod, service, creation_seq)
    metadata["ownerReferences"] = [job.owner]
    spec = template["spec"]
    spec["restartPolicy"] = "Never"
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("enableServiceLinks", False)
    if service is Service.WORKER and (priority := job.templates.worker_priority):
        spec["priorityClassName"] = priority.class_of(pod_number(pod), job.templates.workers)
    if is_spare and job.templates.spare_priority:
        spec["priorityClassName"] = job.templates.spare_priority
    container = main_container(spec["containers"], service)
    memory_raises = min(memory_raises, job.templates.memory_raises_max)
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    raised = raise_memory(container, memory_raises)
    annotations = metadata.setdefault("annotations", {})
    annotations[MEMORY_RAISES] = str(memory_raises)
    if raised != limit:
        annotations[NOTE] = f"it gets {raised} of memory instead of {limit}, because a pod like it ran out of it"
    _set_environment(container, _environment(job, pod, service, creation_seq))
    return {"apiVersion": kinds.POD.api_version, "kind": kinds.POD.name, "metadata": metadata, "spec": spec}


def main_container(containers: Iterable[Manifest], service: Service) -> Manifest:
    """The container of a service among those of a pod, or its status among theirs; empty if it is not there."""
    return next((container for container in containers if container["name"] == service.value), {})


def _environment(job: ClusterJob, pod: PodName, service: Service, creation_seq: int) -> list[Manifest]:
    values = {variable("job"): str(job.job), variable("pod"): str(pod), variable("run"): str(job.run)}
    if creation_seq == EARLY_SEQ:
        values[variable("master_wait_s")] = str(MASTER_WAIT_S)
    fields = {variable("instance"): "metadata.uid"}
    # Workers of a ring connect to each other, as workers do to ps. IPv4 or IPv6.
    fields |= dict.fromkeys((variable("host"), variable("advertised_host")), "status.podIP")
    if service is Service.WORKER:
        fields[variable("node")] = "spec.nodeName"  # It is known before the container starts.
    if service is not Service.PS:
        values[TERMINATION_MESSAGE_VARIABLE] = TERMINATION_MESSAGE
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]


def _set_environment(container: Manifest, variables: list[Manifest]) -> None:
    names = {each["name"] for each in variables}
    kept = [each for each in container.get("env") or () if each["name"] not in names]
    container["env"] = variables + kept  # Ours come first, so that those of the user can refer to them.


def raise_memory(container: Manifest, times: int = 1) -> str | None:
    """Give a container more memory, if it has a limit; returns the limit."""
    resources = container.get("resources", {})
    limit: str | None = resources.get("limits", {}).get("memory")
    if not times or not limit:
        return limit
    for amounts in (resources["limits"], resources.get("requests", {})):
        if "memory" in amounts:
            amounts["memory"] = format_bytes(parse_bytes(amounts["memory"]) * MEMORY_RAISE**times)
    return str(resources["limits"]["memory"])


def memory_limits(pod: Manifest, service: Service, raises_max: int) -> tuple[int, int]:
    """The memory limit of a pod, and that of a pod that replaces it after it ran out of memory, in bytes.

    Returns:
        0 in place of a limit that there is not, and of the second one after the last raise.
    """
    limit = main_container(pod["spec"]["containers"], service).get("resources", {}).get("limits", {}).get("memory")
    size_bytes = parse_bytes(limit) if limit else 0
    return size_bytes, ceil(size_bytes * MEMORY_RAISE) if memory_raises(pod) < raises_max else 0


def memory_raises(pod: Manifest) -> int:
    """How often the memory of a pod's service had been raised when it was created."""
    return int(pod["metadata"].get("annotations", {}).get(MEMORY_RAISES, 0))


def write_message(text: str, *, keeps_end: bool = False, path: Path = Path(TERMINATION_MESSAGE)) -> None:
    """Write the message of this container; of a longer one the beginning, or the end."""
    data = text.encode()
    kept = data[-MESSAGE_BYTES_MAX:] if keeps_end else data[:MESSAGE_BYTES_MAX]
    path.write_text(kept.decode(errors="ignore"))
