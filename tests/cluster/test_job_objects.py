"""The objects of a job, on a real API server: it accepts them, and a namespace of the strictest security does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.conftest import Cluster

from elasticdl.cli.kubernetes.manifests.job_objects import JobManifest
from elasticdl.cli.kubernetes.new_job.creation import create_job
from elasticdl.cli.kubernetes.new_job.planning import Identity, plan_job
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.names import SERVICE_ACCOUNT
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.kubernetes.refusals import ApiRefusedError
from elasticdl.shared.names import Incarnation

TRAIN = TrainFlags(
    model_def="mnist_functional_api.custom_model",
    training_data="s3://data/mnist",
    platform="kubernetes",
    seed=7,
    storage="s3://jobs/all",
)


@pytest.fixture
def restricted(cluster: Cluster, namespace: str) -> Iterator[KubernetesApi]:
    """A namespace that enforces the Pod Security Standard ``restricted``, with the master's service account."""
    with contextlib.closing(KubernetesApi.connect(kubeconfig=str(cluster.kubeconfig), namespace=namespace)) as api:
        label = {"pod-security.kubernetes.io/enforce": "restricted"}
        api.patch(kinds.NAMESPACE, namespace, {"metadata": {"labels": label}})
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": SERVICE_ACCOUNT}})
        yield api


def planned(**pods: Any) -> JobManifest:
    identity = Identity(run=Incarnation("0123456789ab"), token="secret", created_s=1.0)
    return plan_job(TRAIN, KubernetesFlags(image_name="worker:1", **pods), {}, identity)


def test_a_restricted_namespace_accepts_all_objects_and_pods(restricted: KubernetesApi) -> None:
    manifest = planned(volume="claim_name=data,mount_path=/data", node_selector="pool=batch")
    objects = manifest.all(restricted.namespace)
    templates = (objects[0]["spec"]["template"], manifest.templates.worker, manifest.templates.ps)
    pods = [{"apiVersion": "v1", "kind": "Pod", **each} for each in templates]
    for number, pod in enumerate(pods):
        pod["metadata"] = {**pod["metadata"], "name": f"pod-{number}"}
    for each in (*objects, *pods):
        restricted.create(each, dry_run=True)
    assert restricted.list(kinds.JOB).items == ()


def test_a_job_owns_its_objects_and_starts_when_they_exist(restricted: KubernetesApi) -> None:
    manifest = planned()
    create_job(restricted, manifest)
    name = manifest.settings.job
    job = restricted.get(kinds.JOB, name)
    assert not job["spec"]["suspend"]
    for kind in (kinds.CONFIG_MAP, kinds.SECRET):
        owners = restricted.get(kind, name)["metadata"]["ownerReferences"]
        assert [owner["uid"] for owner in owners] == [job["metadata"]["uid"]]
    with pytest.raises(ApiRefusedError):
        create_job(restricted, manifest)


def test_nothing_is_left_if_an_object_is_refused(restricted: KubernetesApi) -> None:
    manifest = planned()
    restricted.create(manifest.secret(restricted.namespace))
    with pytest.raises(ApiRefusedError) as refused:
        create_job(restricted, manifest)
    assert refused.value.already_exists
    assert restricted.list(kinds.JOB).items == ()
