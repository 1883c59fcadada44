"""Every overlay of ``deploy/kustomize`` is valid, and the one for tests becomes ready."""

from __future__ import annotations

import pytest
from kubernetes.dynamic import DynamicClient
from nats import connect
from tests.cluster.conftest import NEEDS_KUSTOMIZE, Cluster
from tests.cluster.deployment import BUCKET, Deployment
from tests.cluster.kustomize import OVERLAYS, apply, is_provided, render, render_components

from elasticdl.shared.bus.server import PAYLOAD_BYTES_MAX
from elasticdl.shared.storage import open_store


@pytest.mark.parametrize("overlay", sorted(path.name for path in OVERLAYS.iterdir()))
def test_the_api_server_accepts_every_object(cluster: Cluster, namespace: str, overlay: str) -> None:
    cluster.node_site()
    if not is_provided():
        pytest.skip(NEEDS_KUSTOMIZE)
    apply(DynamicClient(cluster.core.api_client), render(overlay, namespace), dry_run=True)


def test_the_api_server_accepts_the_dashboard_beside_the_controller(cluster: Cluster, namespace: str) -> None:
    cluster.node_site()
    if not is_provided():
        pytest.skip(NEEDS_KUSTOMIZE)
    objects = render_components("controller", "dashboard", namespace=namespace)
    apply(DynamicClient(cluster.core.api_client), objects, dry_run=True)


def test_every_container_of_production_has_limits_and_no_privileges() -> None:
    if not is_provided():
        pytest.skip(NEEDS_KUSTOMIZE)
    pods = [each["spec"]["template"]["spec"] for each in render("production", "any") if each["kind"] == "StatefulSet"]
    assert len(pods) == 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["resources"]["limits"].keys() >= {"cpu", "memory"}
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_dashboard_reads_the_controllers_log_without_its_credentials() -> None:
    if not is_provided():
        pytest.skip(NEEDS_KUSTOMIZE)
    objects = render_components("controller", "dashboard")
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (service,) = (each for each in objects if each["kind"] == "Service")
    assert deployment["spec"]["replicas"] == 1
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    containers = {each["name"]: each for each in deployment["spec"]["template"]["spec"]["containers"]}
    assert containers.keys() == {"controller", "dashboard"}
    assert {each["name"] for each in containers["dashboard"]["ports"]} == {service["spec"]["ports"][0]["targetPort"]}
    mounts = {each["mountPath"]: each["name"] for each in containers["dashboard"]["volumeMounts"]}
    assert mounts["/fleet"] == containers["controller"]["volumeMounts"][0]["name"]
    assert mounts["/var/run/secrets/kubernetes.io/serviceaccount"] == "no-credentials"


async def test_nats_takes_messages_as_large_as_ours(elasticdl_namespace: Deployment) -> None:
    client = await connect(elasticdl_namespace.environment["ELASTICDL_NATS_URL"])
    try:
        assert client.max_payload == PAYLOAD_BYTES_MAX
        assert (await client.jetstream().account_info()).limits.max_storage != 0
    finally:
        await client.close()


def test_objects_are_stored_in_the_bucket(elasticdl_namespace: Deployment) -> None:
    store = open_store(f"s3://{BUCKET}", elasticdl_namespace.storage())
    store.write(f"s3://{BUCKET}/greeting", b"hello")
    assert store.read(f"s3://{BUCKET}/greeting") == b"hello"
