"""``KubernetesPods`` on a real cluster keeps the contract of ``Pods``."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from tests.cluster import build
from tests.cluster.conftest import Cluster
from tests.cluster.readiness import wait_until
from tests.contract.pods.platforms import Platform
from tests.contract.pods.test_pods import (  # noqa: F401  The tests of the contract.
    supervised,
    test_a_deletion_ends_no_later_pod,
    test_a_new_list_ends_the_former_watch,
    test_a_pod_is_created_once_by_one_command,
    test_a_pod_is_pending_until_it_can_start,
    test_a_pod_that_is_deleted_ends_as_stopped,
    test_a_pod_that_never_started_can_be_deleted,
    test_a_start_that_is_refused_is_reported,
    test_an_end_that_no_watcher_saw_is_reported,
    test_every_end_is_reported_once_with_its_cause,
    test_out_of_memory_is_a_cause_of_its_own,
)

from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import POD_LABEL
from elasticdl.shared.kubernetes.pod_manifests import ClusterJob, owner_reference
from elasticdl.shared.kubernetes.pods import KubernetesPods
from elasticdl.shared.kubernetes.templates import PodTemplates
from elasticdl.shared.names import Incarnation, JobId, PodName

IMAGE, NO_PROGRAM = "localhost/obedient:1", "localhost/no-program:1"
PORT = 7070
GATE = "elasticdl.org/prepared"


def template(name: str, **spec: object) -> Manifest:
    container = {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "1m", "memory": "1Mi"}},
    }
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **spec}}


class ClusterPlatform:
    """Pods whose process obeys the test. Those of workers are not scheduled before the test says so."""

    def __init__(self, api: KubernetesApi, owner: Manifest) -> None:
        self._api = api
        self._gates: list[Manifest] = [{"name": GATE}]
        job = ClusterJob(
            job=JobId("job-0001"),
            run=Incarnation("run"),
            owner=owner,
            templates=PodTemplates(worker=template("worker", schedulingGates=self._gates), ps=template("ps")),
        )
        self.pods = KubernetesPods(api, job)

    def prepare(self, refusal: str = "") -> None:
        self._gates.clear()  # Later pods have none.
        for pod in self._api.list(kinds.POD, labels=f"{POD_LABEL},app.kubernetes.io/component=worker").items:
            if "schedulingGates" in pod["spec"]:
                containers = [each | ({"image": NO_PROGRAM} if refusal else {}) for each in pod["spec"]["containers"]]
                patch = {"spec": {"schedulingGates": None, "containers": containers}}
                self._api.patch(kinds.POD, pod["metadata"]["name"], patch)

    async def finish(self, pod: PodName, exit_code: int) -> None:
        await self._order(pod, f"exit {exit_code if exit_code >= 0 else 128 - exit_code}")

    async def run_out_of_memory(self, pod: PodName) -> None:
        await self._order(pod, "allocate")

    async def _order(self, pod: PodName, line: str) -> None:
        await asyncio.to_thread(self._send, pod, line)

    def _send(self, pod: PodName, line: str) -> None:
        found = self._api.list(kinds.POD, labels=f"{POD_LABEL}={pod}").items
        (address,) = (each["status"]["podIP"] for each in found if each["status"]["phase"] == "Running")

        def sent() -> bool:
            try:
                with socket.create_connection((address, PORT), timeout=1) as connection:
                    connection.sendall(line.encode() + b"\n")
            except OSError:
                return False
            return True

        wait_until(sent, lambda: f"{pod} does not listen at {address}:{PORT}")


@pytest.fixture
async def platform(cluster: Cluster, namespace: str) -> AsyncIterator[Platform]:
    program = build.build_obedient()
    cluster.load_image(IMAGE, program)
    cluster.load_image(NO_PROGRAM, program, "/no/such/program")
    api = KubernetesApi.connect(kubeconfig=str(cluster.kubeconfig), namespace=namespace)
    owner = api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job-0001"}, "spec": OWNER})
    platform = ClusterPlatform(api, owner_reference(owner))
    yield platform
    platform.pods.close()
    api.close()


OWNER: Manifest = {
    "suspend": True,
    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "master", "image": IMAGE}]}},
}
"""A batch Job without pods."""
