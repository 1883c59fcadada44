"""``elasticdl doctor`` on a cluster: its pod finds what only pods can see, and is deleted afterwards."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.readiness import wait_until
from tests.cluster.scenarios.command_line import CommandLine

from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT

pytestmark = [pytest.mark.usefixtures("service_images"), pytest.mark.timeout(300)]
DOCTOR = "app.kubernetes.io/name=elasticdl-doctor"


@pytest.fixture
def secret(cluster: Cluster, user: CommandLine) -> Iterator[dict[str, str]]:
    """The variables of the namespace's Secret, which are restored after the test."""
    data = cluster.core.read_namespaced_secret(NAMESPACE_OBJECT, user.namespace).data
    yield {name: base64.b64decode(value).decode() for name, value in data.items()}
    cluster.core.patch_namespaced_secret(NAMESPACE_OBJECT, user.namespace, {"data": data})


def set_variable(cluster: Cluster, user: CommandLine, name: str, value: str) -> None:
    cluster.core.patch_namespaced_secret(NAMESPACE_OBJECT, user.namespace, {"stringData": {name: value}})


def wait_until_deleted(cluster: Cluster, user: CommandLine) -> None:
    def pods() -> list[str]:
        found = cluster.core.list_namespaced_pod(user.namespace, label_selector=DOCTOR)
        return [each.metadata.name for each in found.items]

    wait_until(lambda: not pods(), lambda: f"left behind: {pods()}")


def test_a_namespace_without_problems(cluster: Cluster, user: CommandLine) -> None:
    output = user.run("doctor")
    assert "ok       NATS from a pod: with JetStream, messages up to 8 MiB" in output
    assert "ok       storage from a pod: s3://elasticdl can be written" in output
    assert "ok       rights of the master: all" in output
    assert "ok       pod: it starts with the images" in output
    wait_until_deleted(cluster, user)


@pytest.mark.bench_cluster
def test_a_nats_server_that_pods_can_not_reach(cluster: Cluster, user: CommandLine, secret: dict[str, str]) -> None:
    assert secret["ELASTICDL_NATS_URL"].endswith("@nats:4222")
    set_variable(cluster, user, "ELASTICDL_NATS_URL", "nats://nats.none:4222")
    output = user.fails("doctor")
    assert "problem  NATS from a pod: no NATS server answers at nats://nats.none:4222" in output
    assert "debug" not in output
    assert f"kubectl edit secret elasticdl --namespace={user.namespace}" in output
    wait_until_deleted(cluster, user)


def test_an_image_that_can_not_be_pulled(cluster: Cluster, user: CommandLine) -> None:
    output = user.fails("doctor", "--image_name=registry.invalid/none:1")
    assert "problem  pod: the pod can't start: can't pull the image registry.invalid/none:1: " in output
    assert "--image_name" in output
    wait_until_deleted(cluster, user)


def test_a_bucket_that_does_not_exist(cluster: Cluster, user: CommandLine) -> None:
    data = cluster.core.read_namespaced_config_map(NAMESPACE_OBJECT, user.namespace).data
    cluster.core.patch_namespaced_config_map(NAMESPACE_OBJECT, user.namespace, {"data": {"storage": "s3://none-such"}})
    try:
        output = user.fails("doctor")
    finally:
        cluster.core.patch_namespaced_config_map(NAMESPACE_OBJECT, user.namespace, {"data": data})
    assert "problem  storage from a pod: s3://none-such can't be written:" in output
    wait_until_deleted(cluster, user)
