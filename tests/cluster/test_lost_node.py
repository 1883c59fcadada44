"""The master of a job whose node is lost: what the Job controller of a real control plane does with the Job.

The nodes are objects without a kubelet, so a pod on them starts and ends when the test says so, and one that is deleted
stays: as on a machine that has lost its power. The container's process is of no importance here; the whole job is in
``scenarios/test_lost_node.py``.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.readiness import wait_until

from elasticdl.cli.kubernetes.condition import condition_of
from elasticdl.cli.kubernetes.new_job.creation import create_objects
from elasticdl.cli.kubernetes.new_job.planning import Identity, plan_job
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_end import end_run
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import SERVICE_ACCOUNT, labels, selector
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.names import Incarnation, JobId, Service

RUN = Incarnation("0123456789ab")
TRAIN = TrainFlags(
    model_def="mnist_functional_api.custom_model",
    training_data="s3://data/mnist",
    platform="kubernetes",
    seed=7,
    storage="s3://jobs/all",
)
TOLERATION_S = 3
"""Instead of half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentNode:
    """A Node object without a kubelet, and the Job of a job whose pods only run there."""

    core: Any
    name: str
    api: KubernetesApi
    job: JobId

    def is_lost(self) -> None:
        """The node controller says that the node does not answer, which it otherwise waits for almost a minute for."""
        self.core.patch_node_status(self.name, {"status": {"conditions": [_ready("Unknown")]}})

    def masters(self) -> list[Manifest]:
        """The pods of the Job, the oldest first."""
        found = self.api.list(kinds.POD, labels=selector(labels(self.job, Service.MASTER))).items
        return sorted(found, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def wait_for_master(self, number: int) -> Manifest:
        """Wait until a pod of the Job is bound to the node; returns it.

        Args:
            number: 1 is the first pod.
        """
        wait_until(lambda: len(self.masters()) >= number, lambda: f"there is no master {number}: {self.masters()}")
        return self.masters()[number - 1]

    def runs(self, pod: Manifest) -> None:
        """The container of a pod has started."""
        self._set(pod, "Running", {"running": {"startedAt": _now()}}, is_ready=True)

    def ends(self, pod: Manifest, exit_code: int) -> None:
        """The container of a pod has ended."""
        ended = {"exitCode": exit_code, "finishedAt": _now(), "message": f"code {exit_code}"}
        self._set(pod, "Failed" if exit_code else "Succeeded", {"terminated": ended}, is_ready=False)

    def wait_for_condition(self, type_: str) -> Manifest:
        """Wait until the Job has a condition; returns the Job."""

        def types() -> list[str]:
            return [each["type"] for each in self.job_object().get("status", {}).get("conditions") or ()]

        wait_until(lambda: type_ in types(), lambda: f"the Job has the conditions {types()}")
        return self.job_object()

    def job_object(self) -> Manifest:
        """The Job."""
        return self.api.get(kinds.JOB, self.job)

    def _set(self, pod: Manifest, phase: str, state: Manifest, *, is_ready: bool) -> None:
        done = {"terminated": {"exitCode": 0}}
        statuses = {"image": "", "imageID": "", "restartCount": 0}
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "initContainerStatuses": [{"name": "submit", "state": done, "ready": True, **statuses}],
            "containerStatuses": [{"name": "master", "state": state, "ready": is_ready, **statuses}],
        }
        self.core.patch_namespaced_pod_status(pod["metadata"]["name"], self.api.namespace, {"status": status})


@pytest.fixture
def node(cluster: Cluster, namespace: str) -> Iterator[SilentNode]:
    """A node that answers, with the running master of a job on it."""
    name = f"silent-{uuid.uuid4().hex[:8]}"
    sizes = {"cpu": "8", "memory": "16Gi", "pods": "10"}
    cluster.core.create_node({"metadata": {"name": name, "labels": {"node": name}}})
    cluster.core.patch_node_status(
        name, {"status": {"capacity": sizes, "allocatable": sizes, "conditions": [_ready("True")]}}
    )
    with contextlib.closing(KubernetesApi.connect(kubeconfig=str(cluster.kubeconfig), namespace=namespace)) as api:
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": SERVICE_ACCOUNT}})
        pods = KubernetesFlags(image_name="worker:1", node_selector=f"node={name}")
        manifest = plan_job(TRAIN, pods, {}, Identity(run=RUN, token="secret", created_s=1.0))
        job, *belongings = manifest.all(namespace)
        for toleration in job["spec"]["template"]["spec"]["tolerations"]:
            toleration["tolerationSeconds"] = TOLERATION_S
        create_objects(api, job, belongings)
        found = SilentNode(core=cluster.core, name=name, api=api, job=manifest.settings.job)
        first = found.wait_for_master(1)
        wait_until(
            lambda: found.masters()[0]["spec"].get("nodeName") == name, lambda: f"not scheduled: {found.masters()}"
        )
        found.runs(first)
        yield found
    for pod in cluster.core.list_namespaced_pod(namespace).items:
        cluster.core.delete_namespaced_pod(pod.metadata.name, namespace, grace_period_seconds=0)
    cluster.core.delete_node(name)


def test_the_master_of_a_lost_node_has_a_successor_that_can_end_the_job(node: SilentNode) -> None:
    node.is_lost()
    successor = node.wait_for_master(2)
    lost = node.masters()[0]
    assert lost["metadata"]["deletionTimestamp"] and lost["status"]["phase"] == "Running"
    assert condition_of(node.job_object(), node.masters()).is_running

    end_run(node.api, node.job, RUN)
    node.runs(successor)
    wait_until(lambda: node.job_object()["status"].get("ready") == 1, lambda: str(node.job_object()["status"]))
    assert "deletionTimestamp" not in node.masters()[1]["metadata"]  # It still has to leave its exit code.
    node.ends(successor, 1)
    job = node.wait_for_condition("FailureTarget")
    ended = condition_of(job, node.masters())
    assert (ended.is_running, ended.state, ended.message) == (False, "failed", "code 1")

    node.core.delete_namespaced_pod(lost["metadata"]["name"], node.api.namespace, grace_period_seconds=0)
    node.wait_for_condition("Failed")
    assert len(node.masters()) == 1


def test_the_success_of_a_successor_counts_while_the_lost_master_is_there(node: SilentNode) -> None:
    first = node.masters()[0]
    node.api.delete(kinds.POD, first["metadata"]["name"])  # Its node does not end it.
    node.ends(node.wait_for_master(2), 0)
    job = node.wait_for_condition("SuccessCriteriaMet")
    ended = condition_of(job, node.masters())
    assert (ended.is_running, ended.state) == (False, "succeeded")
    assert "deletionTimestamp" in node.masters()[0]["metadata"]


def test_a_failed_master_has_a_successor_until_the_job_is_ended(node: SilentNode) -> None:
    node.ends(node.masters()[0], 1)
    node.ends(node.wait_for_master(2), 75)
    wait_until(lambda: node.job_object()["status"].get("failed") == 2, lambda: str(node.job_object()["status"]))
    assert condition_of(node.job_object(), node.masters()).is_running


def _ready(status: str) -> Manifest:
    return {"type": "Ready", "status": status, "lastHeartbeatTime": _now(), "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
