"""Jobs that can't start: each is refused with one sentence, and nothing is left behind."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.readiness import wait_until
from tests.cluster.sites import POD_IMAGE

from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.lookup import jobs_in
from elasticdl.cli.kubernetes.new_job.creation import create_job
from elasticdl.cli.kubernetes.new_job.following import follow
from elasticdl.cli.kubernetes.new_job.planning import Identity, plan_job
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT, SERVICE_ACCOUNT
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.names import Incarnation

TRAIN = TrainFlags(
    model_def="mnist_functional_api.custom_model",
    training_data="s3://data/mnist",
    platform="kubernetes",
    seed=7,
    storage="s3://jobs/all",
)
DEFAULTS = {"image_name": POD_IMAGE}


@pytest.fixture
def api(cluster: Cluster, namespace: str) -> Iterator[KubernetesApi]:
    with contextlib.closing(KubernetesApi.connect(kubeconfig=str(cluster.kubeconfig), namespace=namespace)) as api:
        yield api


def named(kind: str, name: str, **content: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content}


def refused(api: KubernetesApi, train: TrainFlags = TRAIN, **pods: Any) -> str:
    """Create and follow a job that can't start; returns its error."""
    identity = Identity(run=Incarnation("0123456789ab"), token="secret", created_s=1.0)
    manifest = plan_job(train, KubernetesFlags(image_pull_policy="IfNotPresent", **pods), DEFAULTS, identity)
    create_job(api, manifest)
    with pytest.raises(UserError) as error:
        follow(KubernetesJobHandle(api, manifest.settings.job, is_default=True), image_pull_s=1.0)
    assert jobs_in(api) == []
    return str(error.value)


def test_a_missing_service_account_is_named(api: KubernetesApi) -> None:
    assert 'serviceaccount "elasticdl-master" not found' in refused(api)


def test_a_missing_priority_class_is_named(api: KubernetesApi) -> None:
    api.create(named("ServiceAccount", SERVICE_ACCOUNT))
    assert "no PriorityClass with name none-such was found" in refused(api, master_pod_priority="none-such")


def test_a_used_up_quota_is_named(api: KubernetesApi) -> None:
    api.create(named("ServiceAccount", SERVICE_ACCOUNT))
    api.create(named("ResourceQuota", "small", spec={"hard": {"requests.cpu": "1m"}}))
    message = refused(api)
    assert "exceeded quota: small" in message and "kubectl describe resourcequota" in message


def test_an_image_that_can_not_be_pulled_is_named(api: KubernetesApi) -> None:
    api.create(named("ServiceAccount", SERVICE_ACCOUNT))
    message = refused(api, image_name="registry.invalid/none:1")
    assert message.startswith("the master's pod can't start: can't pull the image registry.invalid/none:1")


def test_a_missing_secret_is_named(cluster: Cluster, api: KubernetesApi) -> None:
    cluster.node_site()
    api.create(named("ServiceAccount", SERVICE_ACCOUNT))
    message = refused(api, dataclasses.replace(TRAIN, nats_url="nats://nats"))
    assert f'container prepare: CreateContainerConfigError: secret "{NAMESPACE_OBJECT}" not found' in message
    # Kubernetes' garbage collector deletes what the Job owns a moment after the Job.
    wait_until(
        lambda: not api.list(kinds.CONFIG_MAP, labels="app.kubernetes.io/name=elasticdl").items,
        lambda: "the job's ConfigMap stays",
    )
