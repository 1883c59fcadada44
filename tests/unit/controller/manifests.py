"""Objects as the API server has them, for tests of what the controller reads."""

from __future__ import annotations

from typing import Any

from elasticdl.controller.service.lifecycle import Case, job_id
from elasticdl.controller.service.observing import SeenPod, read_pod
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import labels, pod_labels
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec
from elasticdl.shared.names import PodName, Service

CREATED = "2026-01-02T03:04:05Z"
SPEC = {
    "job": {"model_def": "mnist.custom_model", "training_data": "s3://data/train", "storage": "s3://jobs"},
    "worker": {"min": 2, "max": 6, "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
    "ps": {"min": 1, "max": 2, "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}}},
}


def training_job(status: Manifest | None = None, **spec: Any) -> Manifest:
    metadata = {
        "name": "clicks",
        "namespace": "team",
        "uid": "6e0c",
        "generation": 1,
        "creationTimestamp": CREATED,
        "resourceVersion": "5",
    }
    return {
        "apiVersion": "elasticdl.org/v1",
        "kind": "TrainingJob",
        "metadata": metadata,
        "spec": {**SPEC, **spec},
        "status": status or {},
    }


def batch_job(manifest: Manifest, *, ended: str = "", annotations: dict[str, str] | None = None) -> Manifest:
    """The Job; ``ended``: the condition that says so."""
    conditions = [{"type": ended, "status": "True", "message": ""}] if ended else []
    metadata = {"name": job_id(manifest), "namespace": "team", "uid": "b", "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}


def pod(name: str = "p", phase: str = "Running", node: str = "n0", **facts: Any) -> Manifest:
    """A pod with one container; ``facts``: ``requests``, ``labels``, ``metadata`` and ``status`` besides."""
    container = {"name": "main", "resources": {"requests": facts.get("requests", {"cpu": "1", "memory": "1Gi"})}}
    metadata = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": CREATED}
    return {
        "metadata": metadata | {"labels": facts.get("labels", {})} | facts.get("metadata", {}),
        "spec": {"containers": [container], "nodeName": node, "priority": 7},
        "status": {"phase": phase} | facts.get("status", {}),
    }


def job_pods(manifest: Manifest, workers: int, ps: int = 1) -> list[SeenPod]:
    """The running pods of a job on node n0, as the controller sees them."""
    job = job_id(manifest)
    found = [pod(f"{job}-x", labels=labels(job, Service.MASTER))]
    for service, number in ((Service.PS, ps), (Service.WORKER, workers)):
        for index in range(number):
            own = pod_labels(job, PodName(f"{service.value}-{index}"), service, 1)
            found.append(pod(f"{job}-{service.value}-{index}-1", labels=own))
    return [seen for each in found if (seen := read_pod(each)) is not None]


def stopped_master(manifest: Manifest) -> Manifest:
    ended = {"terminated": {"exitCode": 0, "message": "The job was stopped."}}
    status = {"containerStatuses": [{"name": "master", "state": ended}]}
    return pod(labels=labels(job_id(manifest), Service.MASTER), phase="Succeeded", status=status)


def case(manifest: Manifest, **facts: Any) -> Case:
    return Case(key="team/clicks", manifest=manifest, spec=TrainingJobSpec.from_manifest(manifest), **facts)
