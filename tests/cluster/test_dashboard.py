"""The dashboard's component beside the controller on a real node: its fleet page reads the controller's log."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from tests.cluster.conftest import NEEDS_KUSTOMIZE, Cluster
from tests.cluster.kustomize import apply, is_provided, render_components
from tests.cluster.readiness import wait_until
from tests.cluster.service_images import service_image

TOKEN = "look"
KEPT = {"CustomResourceDefinition", "Namespace"}
"""Other tests have TrainingJobs."""


@pytest.fixture
def address(cluster: Cluster, namespace: str, service_images: None) -> Iterator[str]:
    """``host:port`` of the dashboard's Service, with a controller of this namespace."""
    del service_images
    if not is_provided():
        pytest.skip(NEEDS_KUSTOMIZE)
    client = DynamicClient(cluster.core.api_client)
    objects = [*render_components("controller", "dashboard", namespace=namespace), secret(namespace)]
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        container |= {"image": service_image("worker"), "imagePullPolicy": "Never"}
        if container["name"] == "controller":
            container["args"].append(f"--namespace={namespace}")
    try:
        apply(client, objects)
        service = cluster.core.read_namespaced_service("elasticdl-dashboard", namespace)
        yield f"{service.spec.cluster_ip}:{service.spec.ports[0].port}"
    finally:
        for each in objects:
            if each["kind"] not in KEPT:
                kind = client.resources.get(api_version=each["apiVersion"], kind=each["kind"])
                try:
                    kind.delete(name=each["metadata"]["name"], namespace=each["metadata"].get("namespace"))
                except ApiException as error:
                    assert error.status == 404, error


def secret(namespace: str) -> dict[str, Any]:
    metadata = {"name": "elasticdl-dashboard", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": TOKEN}}


def answer(address: str, path: str, token: str = TOKEN) -> Any:
    request = urllib.request.Request(f"http://{address}/api/{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.loads(response.read())


@pytest.mark.timeout(300)
def test_the_fleet_page_reads_the_log_of_the_controller(cluster: Cluster, namespace: str, address: str) -> None:
    found: dict[str, Any] = {}

    def has_nodes() -> bool:
        try:
            found.update(answer(address, "fleet"))
        except OSError as error:  # The pod is not ready, or the controller has decided nothing yet.
            found["problem"] = str(error)
        return bool(found.get("node_count"))

    def failure() -> str:
        pods = cluster.core.list_namespaced_pod(namespace).items
        return f"{found}\n{[each.status.container_statuses for each in pods]}"

    wait_until(has_nodes, failure, 200)
    nodes = {each.metadata.name for each in cluster.core.list_node().items}
    assert {each["name"] for each in found["nodes"]} <= nodes
    assert answer(address, "jobs")["fleet"]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        answer(address, "fleet", token="guess")
