"""What the controller reads from nodes and pods."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.manifests import pod, training_job

from elasticdl.controller.core import Constraint, Phase, Queue, Requirement, Role, Taint, Toleration
from elasticdl.controller.service.observing import read_node, read_pod, request_of
from elasticdl.controller.service.placement import constraint_of, constraint_of_role
from elasticdl.controller.service.quotas import budgets_of, read_queues, read_resource_quota
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import labels, pod_labels
from elasticdl.shared.kubernetes.training_job import TrainingJobSpec
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
    [node(ready="False"), node(unschedulable=True)],
)
def test_a_node_that_takes_no_pods_is_none(closed: Manifest) -> None:
    assert read_node(closed) is None


def test_a_node_has_its_labels_and_its_taints() -> None:
    found = read_node(
        node(taints=[{"key": "gpu", "effect": "NoSchedule"}]) | {"metadata": {"name": "n", "labels": {"a": "b"}}}
    )
    assert found is not None
    assert (found.labels, found.taints) == ({"a": "b"}, (Taint(key="gpu"),))


def test_a_pod_demands_what_its_manifest_says() -> None:
    spec = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n3"]}]},
                    ]
                }
            }
        },
    }
    assert constraint_of(spec) == Constraint(
        selector=(("disk", "ssd"),),
        terms=(
            (Requirement(key="zone", operator="In", values=("a", "b")),),
            (Requirement(key="metadata.name", operator="NotIn", values=("n3",)),),
        ),
        tolerations=(Toleration(key="gpu", operator="Exists"),),
    )
    assert constraint_of({"affinity": {"podAntiAffinity": {}}}) == Constraint()


def test_the_pods_of_a_role_demand_what_their_template_will() -> None:
    """The constraint is that of the pods that the job will have, see ``TrainingJobSpec.patches``."""
    manifest = training_job(
        nodeSelector={"disk": "ssd"},
        podTemplate={"spec": {"tolerations": [{"key": "all", "operator": "Exists"}], "nodeSelector": {"zone": "a"}}},
        worker={
            "max": 2,
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "podTemplate": {"spec": {"tolerations": [{"key": "spot", "operator": "Exists"}]}},
        },
    )
    spec = TrainingJobSpec.from_manifest(manifest)
    worker, ps = constraint_of_role(spec, spec.worker), constraint_of_role(spec, spec.ps)
    assert worker.selector == (("disk", "ssd"), ("pool", "gpu"), ("zone", "a"))
    assert [each.key for each in worker.tolerations] == ["gpu", "spot"]
    assert ps.selector == (("disk", "ssd"), ("zone", "a"))
    assert [each.key for each in ps.tolerations] == ["all"]


def test_resource_quotas_leave_what_other_pods_do_not_use() -> None:
    def quota(**spec: Any) -> Manifest:
        return {"metadata": {"name": "compute", "namespace": "team"}, "spec": spec}

    hard = {"requests.cpu": "10", "requests.nvidia.com/gpu": "2", "limits.memory": "1Gi", "count/jobs.batch": "3"}
    found = read_resource_quota(quota(hard=hard))
    assert found is not None
    (budget,) = budgets_of([found], {"team": {"cpu": 4000, "memory": 7}, "other": {"cpu": 9000}})
    assert budget.name == "ResourceQuota team/compute"
    assert budget.most == {"cpu": 6000, "nvidia.com/gpu": 2}
    assert read_resource_quota(quota(hard={"limits.cpu": "1"})) is None
    assert read_resource_quota(quota(hard={"pods": "1"}, scopes=["BestEffort"])) is None


def test_queues_are_read_and_wrong_ones_named() -> None:
    data = {
        "team-a": "quota: {cpu: 40, memory: 2Gi}\nlimit: {cpu: 60}",
        "team-b": "quota: 40",
        "team-c": "quotas: {cpu: 40}",
        "team-d": "quota: {cpu: 1}\nborrow: true",
        "team-e": "[",
        "team-f": "quota: {cpu: many}",
    }
    queues, problems = read_queues({"data": data})
    assert queues == [Queue(name="team-a", quota={"cpu": 40_000, "memory": 2048}, limit={"cpu": 60_000})]
    assert [each.partition(":")[0] for each in problems] == [f"queue team-{letter}" for letter in "bcdef"]


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
