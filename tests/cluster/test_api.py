"""The client of the API, on a real API server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import nats_server
from tests.cluster.readiness import wait_until
from tests.cluster.sites import POD_IMAGE
from tests.cluster.test_pods import NATS, NATS_PORT
from tests.deadline import DEADLINE_S

from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.port_forward import forwarded
from elasticdl.shared.kubernetes.refusals import ApiRefusedError


@pytest.fixture
def api(cluster: Cluster, namespace: str) -> Iterator[KubernetesApi]:
    with contextlib.closing(KubernetesApi.connect(kubeconfig=str(cluster.kubeconfig), namespace=namespace)) as api:
        yield api


def config_map(name: str, **labels: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"a": "1"}}


def test_an_object_is_created_changed_and_deleted(api: KubernetesApi) -> None:
    assert api.version().startswith("v1.")
    api.create(config_map("checked"), dry_run=True)
    created = api.create(config_map("first", app="one"))
    with pytest.raises(ApiRefusedError) as again:
        api.create(config_map("first"))
    assert again.value.already_exists
    assert api.patch(kinds.CONFIG_MAP, "first", {"data": {"a": None, "b": "2"}})["data"] == {"b": "2"}
    assert api.get(kinds.CONFIG_MAP, "first")["metadata"]["uid"] == created["metadata"]["uid"]
    assert [each["metadata"]["name"] for each in api.list(kinds.CONFIG_MAP, labels="app=one").items] == ["first"]
    with pytest.raises(ApiRefusedError) as other:
        api.delete(kinds.CONFIG_MAP, "first", uid="another")
    assert other.value.is_conflict
    api.delete(kinds.CONFIG_MAP, "first", uid=created["metadata"]["uid"])
    with pytest.raises(ApiRefusedError, match="get ConfigMap first in namespace test-") as absent:
        api.get(kinds.CONFIG_MAP, "first")
    assert absent.value.is_not_found


def test_a_watch_continues_from_a_list(api: KubernetesApi) -> None:
    api.create(config_map("before"))
    listed = api.list(kinds.CONFIG_MAP, labels="app=one")
    assert listed.items == ()
    api.create(config_map("after", app="one"))
    api.delete(kinds.CONFIG_MAP, "after")
    changes = api.watch(kinds.CONFIG_MAP, listed.resource_version, labels="app=one")
    first, second = next(changes), next(changes)
    assert [first.type, second.type] == ["ADDED", "DELETED"]
    assert int(second.resource_version) > int(first.resource_version)


def test_the_log_of_a_pod_is_read(cluster: Cluster, api: KubernetesApi) -> None:
    cluster.create_pod(api.namespace, "talker", POD_IMAGE, args=["allocate", "1"], restartPolicy="Never")
    cluster.wait_for_phase(api.namespace, "talker", "Running", "Succeeded")
    lines = api.follow_log("talker", container="main")
    assert next(lines) == "running"
    assert api.log("talker", tail_lines=1) == "running\n"
    with pytest.raises(ApiRefusedError):
        api.log("nobody")


def test_a_port_of_a_pod_is_reached_through_the_api_server(cluster: Cluster, api: KubernetesApi) -> None:
    cluster.load_image(NATS, nats_server())
    cluster.create_pod(api.namespace, "nats", NATS)
    cluster.wait_for_phase(api.namespace, "nats", "Running")

    def greets() -> bool:
        with (
            forwarded(lambda: api.port_forward("nats", NATS_PORT)) as port,
            socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection,
        ):
            return connection.recv(6) == b"INFO {"

    wait_until(greets, lambda: "nats-server does not answer through the API server")
    for thread in threading.enumerate():
        if thread.name.startswith("port-forward"):
            thread.join(DEADLINE_S)  # Otherwise its sockets are open when the test ends.
    with pytest.raises(ApiRefusedError) as absent:
        api.port_forward("nobody", NATS_PORT)
    assert absent.value.is_not_found


def test_rights_are_asked_for(api: KubernetesApi) -> None:
    assert api.is_allowed("create", kinds.POD)
    assert api.is_allowed("get", kinds.POD, subresource="log")


def test_a_server_that_does_not_answer_is_named(cluster: Cluster, api: KubernetesApi, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig.read_text().replace(api.server, "https://127.0.0.1:1"))
    with pytest.raises(TransientError, match=r"https://127\.0\.0\.1:1"):
        KubernetesApi.connect(kubeconfig=str(kubeconfig)).version()


@pytest.mark.parametrize("content", [None, "", "a: [b\n: c", "a: b"])
def test_an_unusable_configuration_is_refused(tmp_path: Path, content: str | None) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    if content is not None:
        kubeconfig.write_text(content)
    with pytest.raises(UserError, match="does not describe a Kubernetes cluster"):
        KubernetesApi.connect(kubeconfig=str(kubeconfig))
