"""Commands whose input, rights or namespace are wrong: one sentence, what repairs it, and nothing is left behind."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.conftest import Cluster
from tests.cluster.scenarios.command_line import CommandLine

from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT, SERVICE_ACCOUNT

TRAIN = [
    *("train", "--platform=kubernetes", "--model_def=mnist_functional_api.custom_model"),
    *("--training_data=s3://data/mnist", "--output=s3://data/model", "--storage=s3://data/jobs"),
    *("--image_name=localhost/none:1", "--master_image=localhost/none:1", "--ps_image=localhost/none:1"),
]
JOBS = "app.kubernetes.io/name=elasticdl"


@pytest.fixture
def user(cluster: Cluster, namespace: str, tmp_path: Path) -> CommandLine:
    """A user who submits jobs to a namespace in which nothing is prepared."""
    return CommandLine(kubeconfig=cluster.kubeconfig, namespace=namespace, folder=tmp_path)


def prepare(cluster: Cluster, namespace: str) -> None:
    """Create what jobs need, as far as the client looks for it."""
    secret = {"metadata": {"name": NAMESPACE_OBJECT}, "stringData": {"ELASTICDL_NATS_URL": "nats://nats"}}
    cluster.core.create_namespaced_secret(namespace, secret)
    cluster.core.create_namespaced_service_account(namespace, {"metadata": {"name": SERVICE_ACCOUNT}})


def refused(cluster: Cluster, user: CommandLine, *flags: str) -> str:
    """The messages of a command that has to fail, and to leave nothing behind."""
    message = user.fails(*TRAIN, *flags)
    for each in (cluster.core.list_namespaced_config_map, cluster.core.list_namespaced_secret):
        assert each(user.namespace, label_selector=JOBS).items == []
    assert cluster.core.list_namespaced_pod(user.namespace).items == []
    return message


def kubeconfig_with_token(cluster: Cluster, token: str, path: Path) -> Path:
    """A kubeconfig for the same cluster and another user."""
    content: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    content["users"] = [{"name": each["name"], "user": {"token": token}} for each in content["users"]]
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_kubeconfig_that_does_not_exist(user: CommandLine) -> None:
    stranger = dataclasses.replace(user, kubeconfig=user.folder / "none")
    message = stranger.fails(*TRAIN)
    assert (
        f"kubeconfig {stranger.kubeconfig} does not describe a Kubernetes cluster" in message
        and "KUBECONFIG" in message
    )


def test_a_namespace_that_does_not_exist(user: CommandLine) -> None:
    message = user.fails(*TRAIN, "--namespace=none-such")
    assert "namespace none-such does not exist" in message and "kubectl create namespace none-such" in message


def test_a_namespace_that_is_not_prepared(cluster: Cluster, user: CommandLine) -> None:
    message = refused(cluster, user)
    assert f"Secret {NAMESPACE_OBJECT} in namespace {user.namespace} has no ELASTICDL_NATS_URL" in message
    assert "kubectl apply -k deploy/kustomize/overlays/" in message


def test_a_user_without_rights(cluster: Cluster, user: CommandLine, tmp_path: Path) -> None:
    prepare(cluster, user.namespace)
    cluster.core.create_namespaced_service_account(user.namespace, {"metadata": {"name": "stranger"}})
    token = cluster.core.create_namespaced_service_account_token("stranger", user.namespace, {"spec": {}}).status.token
    kubeconfig = kubeconfig_with_token(cluster, token, tmp_path / "kubeconfig")
    message = refused(cluster, dataclasses.replace(user, kubeconfig=kubeconfig))
    assert "you may not: create jobs, get jobs" in message and "deploy/kustomize/base/rbac.yaml" in message


def test_a_missing_service_account(cluster: Cluster, user: CommandLine) -> None:
    prepare(cluster, user.namespace)
    message = refused(cluster, user, "--service_account_name=none-such")
    assert f"service account none-such does not exist in namespace {user.namespace}" in message


def test_a_missing_priority_class(cluster: Cluster, user: CommandLine) -> None:
    prepare(cluster, user.namespace)
    message = refused(cluster, user, "--worker_pod_priority=none-such")
    assert "PriorityClass none-such does not exist" in message and "--worker_pod_priority" in message


@pytest.mark.parametrize("service", ["master", "worker", "ps"])
def test_a_request_larger_than_every_node(cluster: Cluster, user: CommandLine, service: str) -> None:
    prepare(cluster, user.namespace)
    message = refused(cluster, user, f"--{service}_resource_request=cpu=500,memory=1Gi")
    assert f"no node is large enough for a pod of {service} (cpu=500, memory=1Gi)" in message
    assert f"--{service}_resource_request" in message


def test_a_quota_without_room(cluster: Cluster, user: CommandLine) -> None:
    prepare(cluster, user.namespace)
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "1m"}}}
    cluster.core.create_namespaced_resource_quota(user.namespace, quota)
    message = refused(cluster, user)
    assert "quota small has too little requests.cpu" in message and "kubectl describe resourcequota" in message
