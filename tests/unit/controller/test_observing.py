"""What the controller reads from nodes and pods."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.manifests import pod

from elasticdl.controller.core import Phase, Role
from elasticdl.controller.service.observing import read_node, read_pod, request_of
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import labels, pod_labels
from elasticdl.shared.names import JobId, PodName, Service


def node(**spec: Any) -> Manifest:
    ready = [{"type": "Ready", "status": spec.pop("ready", "True")}]
    allocatable = {"cpu": "3920m", "memory": "16000Ki", "pods": "110", "nvidia.com/gpu": "2"}
    return {"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": ready, "allocatable": allocatable}}


def test_amounts_of_a_node_are_rounded_down() -> None:
    found = read_node(node())
    assert found is not None
    assert found.allocatable == {"cpu": 3920, "memory": 15, "pods": 110, "nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    "closed",
    [node(ready="False"), node(unschedulable=True), node(taints=[{"key": "gpu", "effect": "NoSchedule"}])],
)
def test_a_node_that_takes_no_pods_is_none(closed: Manifest) -> None:
    assert read_node(closed) is None


def test_a_taint_that_only_prefers_changes_nothing() -> None:
    assert read_node(node(taints=[{"key": "spot", "effect": "PreferNoSchedule"}])) is not None


def test_the_request_of_a_pod_is_what_the_scheduler_counts() -> None:
    def container(cpu: str, **others: Any) -> Manifest:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **others}

    spec = {
        "containers": [container("0.1"), container("200m")],
        "initContainers": [container("250m"), container("50m", restartPolicy="Always"), container("1")],
        "overhead": {"cpu": "10m"},
    }
    assert request_of(spec) == {"cpu": 1010, "pods": 1}
    assert request_of({"containers": [container("0.1")]}) == {"cpu": 100, "pods": 1}


def test_a_limit_without_a_request_is_the_request() -> None:
    limited = {"name": "c", "resources": {"limits": {"memory": "1.5Gi"}}}
    assert request_of({"containers": [limited]}) == {"memory": 1536, "pods": 1}


def test_a_worker_has_its_job_its_role_and_its_number() -> None:
    job = JobId("clicks-abc")
    seen = read_pod(pod(labels=pod_labels(job, PodName("worker-12"), Service.WORKER, 3)))
    assert seen is not None
    assert (seen.pod.job, seen.pod.role, seen.number, seen.pod.priority) == (job, Role.WORKER, 12, 7)
    master = read_pod(pod(labels=labels(job, Service.MASTER)))
    assert master is not None
    assert (master.pod.role, master.number) == (Role.MASTER, -1)


@pytest.mark.parametrize(
    ("manifest", "phase"),
    [
        (pod(phase="Running"), Phase.RUNNING),
        (pod(phase="Pending"), Phase.STARTING),
        (pod(phase="Pending", node=""), Phase.PENDING),
        (pod(phase="Running", metadata={"deletionTimestamp": "2026-01-02T03:04:06Z"}), Phase.LEAVING),
    ],
)
def test_the_phase_of_a_pod(manifest: Manifest, phase: Phase) -> None:
    seen = read_pod(manifest)
    assert seen is not None
    assert seen.pod.phase is phase


def test_a_pod_of_others_has_no_job_and_an_ended_one_holds_no_room() -> None:
    seen = read_pod(pod(labels={"app": "web"}))
    assert seen is not None
    assert (seen.pod.job, seen.pod.role) == ("", None)
    assert read_pod(pod(phase="Succeeded")) is None


def test_a_pod_that_can_never_start_is_stuck_and_says_why() -> None:
    waiting = {"waiting": {"reason": "InvalidImageName", "message": "no such image"}}
    status = {"containerStatuses": [{"name": "main", "state": waiting}]}
    seen = read_pod(pod(phase="Pending", status=status))
    assert seen is not None
    assert (seen.pod.phase, "InvalidImageName" in seen.problem) == (Phase.STUCK, True)
