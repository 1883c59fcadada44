"""A job on Kubernetes from end to end: data, snapshots and model are in object storage, and nothing else is needed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as parquet
import pytest
from tests.cluster.conftest import CLICK_RECORDS, Cluster
from tests.cluster.deployment import BUCKET, Deployment
from tests.cluster.readiness import wait_until
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.service_images import service_image
from tests.cluster.test_service_images import RESTRICTED

from elasticdl.shared.storage import open_store

JOB_LIMIT_S = 400
FLAGS = [
    "--model_def=deepfm.custom_model",
    "--model_params=hidden=(64,32)",
    "--num_workers=2",
    "--num_ps_pods=1",
    "--worker_resource_request=cpu=80m,memory=900Mi",
    "--worker_resource_limit=cpu=2,memory=1500Mi",
    "--ps_resource_request=cpu=40m,memory=300Mi",
    "--ps_resource_limit=cpu=2,memory=1Gi",
    "--master_resource_request=cpu=10m,memory=200Mi",
    "--master_resource_limit=cpu=2,memory=1500Mi",
]
EXPORT = f"s3://{BUCKET}/exports/clicks"
pytestmark = pytest.mark.timeout(900)

PREDICT = f"""
import glob, os, sys
sys.path += glob.glob("/opt/elasticdl/lib/python3.*/site-packages")  # -S: without the .pth file that adds this package
import numpy as np
import tensorflow as tf
from minio import Minio
host = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
keys = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
store = Minio(endpoint=host, access_key=keys[0], secret_key=keys[1], secure=False)
for item in store.list_objects("{BUCKET}", prefix="exports/clicks/saved_model/", recursive=True):
    store.fget_object("{BUCKET}", item.object_name, "/tmp/" + item.object_name)
serve = tf.saved_model.load("/tmp/exports/clicks/saved_model").signatures["serving_default"]
inputs = serve.structured_input_signature[1]
shapes = {{name: [8] + list(spec.shape[1:]) for name, spec in inputs.items()}}
(scores,) = serve(**{{name: tf.ones(shapes[name], spec.dtype) for name, spec in inputs.items()}}).values()
assert not any(name.startswith("elasticdl") for name in sys.modules)
print("predictions between 0 and 1:", int(np.sum((scores.numpy() > 0) & (scores.numpy() < 1))))
"""


@dataclass(frozen=True, slots=True)
class Finished:
    """A job that has succeeded with an exact audit."""

    job: str
    report: dict[str, Any]
    masters: Sequence[Any]
    """The pods of its Job."""


def finish(
    cluster: Cluster, user: CommandLine, command: str, *flags: str, disturb: Callable[[str], None] = lambda _: None
) -> Finished:
    """Run a job to its end; ``disturb`` gets its id once it is created."""
    created = user.run(command, "--platform=kubernetes", "--detach", *FLAGS, *flags)
    (job,) = set(re.findall(r"Created job (\S+) in namespace", created))
    disturb(job)
    report = user.wait_for_end(job, JOB_LIMIT_S)
    assert report["state"] == "succeeded", report
    assert report["audit"]["exact"], report

    def masters() -> Sequence[Any]:
        of_job = f"batch.kubernetes.io/job-name={job}"
        found: Sequence[Any] = cluster.core.list_namespaced_pod(user.namespace, label_selector=of_job).items
        return found

    wait_until(lambda: all(each.status.phase == "Succeeded" for each in masters()), lambda: f"the master of {job} runs")
    return Finished(job, report, masters())


@pytest.fixture(scope="module")
def trained(
    cluster: Cluster,
    elasticdl_namespace: Deployment,
    click_data: str,
    service_images: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Finished:
    """A job that has trained and exported a model, and evaluated it on the test data."""
    folder = tmp_path_factory.mktemp("trained")
    user = CommandLine(kubeconfig=cluster.kubeconfig, namespace=elasticdl_namespace.namespace, folder=folder)
    data = (f"--training_data={click_data}/train", f"--validation_data={click_data}/test")
    return finish(cluster, user, "train", "--num_epochs=1", "--job_name=clicks", f"--output={EXPORT}", *data)


@pytest.mark.usefixtures("trained")
def test_an_exported_model_predicts_without_this_package(cluster: Cluster, elasticdl_namespace: Deployment) -> None:
    cluster.create_pod(
        elasticdl_namespace.namespace,
        "predicts",
        service_image("worker"),
        command=["/opt/elasticdl/bin/python", "-S", "-c", PREDICT],
        envFrom=[{"secretRef": {"name": "elasticdl"}}],
        resources={"requests": {"cpu": "80m"}, "limits": {"cpu": "2", "memory": "1500Mi"}},
        restartPolicy="Never",
        securityContext=RESTRICTED,
        volumeMounts=[{"name": "temporary", "mountPath": "/tmp"}],
        volumes=[{"name": "temporary", "emptyDir": {}}],
    )
    ended = cluster.wait_for_phase(elasticdl_namespace.namespace, "predicts", "Succeeded", "Failed")
    log = cluster.core.read_namespaced_pod_log("predicts", elasticdl_namespace.namespace)
    assert ended.status.phase == "Succeeded", log
    assert "predictions between 0 and 1: 8" in log


@pytest.mark.bench_cluster
def test_the_model_of_a_job_is_evaluated(
    cluster: Cluster, user: CommandLine, click_data: str, trained: Finished
) -> None:
    evaluated = finish(cluster, user, "evaluate", f"--model={trained.job}", f"--validation_data={click_data}/test")
    assert evaluated.report["metrics"] == pytest.approx(trained.report["metrics"], abs=1e-5)
    message = evaluated.masters[0].status.container_statuses[0].state.terminated.message
    assert message.startswith("The job has succeeded.\n") and "\nloss: 0." in message


@pytest.mark.bench_cluster
@pytest.mark.usefixtures("trained")
def test_an_exported_model_predicts_every_record_while_a_worker_is_killed(
    cluster: Cluster, elasticdl_namespace: Deployment, user: CommandLine, click_data: str
) -> None:
    output = f"s3://{BUCKET}/predictions"
    data = (f"--prediction_data={click_data}/train", f"--output={output}", "--num_minibatches_per_task=4")

    def kill_a_worker(job: str) -> None:
        wanted = f"app.kubernetes.io/instance={job},app.kubernetes.io/component=worker"

        def running() -> list[str]:
            found = cluster.core.list_namespaced_pod(user.namespace, label_selector=wanted).items
            return [each.metadata.name for each in found if each.status.phase == "Running"]

        wait_until(lambda: bool(running()), lambda: f"no worker of {job} runs", JOB_LIMIT_S)
        cluster.core.delete_namespaced_pod(running()[0], user.namespace, grace_period_seconds=0)

    predicted = finish(cluster, user, "predict", f"--model={EXPORT}", *data, disturb=kill_a_worker)
    store = open_store(output, elasticdl_namespace.storage())
    files = [each.uri for each in store.list(output + "/") if each.uri.endswith(".parquet")]
    rows = sum(parquet.read_metadata(io.BytesIO(store.read(uri))).num_rows for uri in files)
    assert rows == CLICK_RECORDS
    message = predicted.masters[0].status.container_statuses[0].state.terminated.message
    assert message == f"The job has succeeded.\n{rows:,} predictions are in {output}."


@pytest.mark.bench_cluster
@pytest.mark.usefixtures("trained")
def test_a_job_starts_from_an_exported_model(cluster: Cluster, user: CommandLine, click_data: str) -> None:
    data = f"--training_data={click_data}/train"
    further = finish(cluster, user, "train", "--num_epochs=1", f"--initial_model={EXPORT}", data)
    assert EXPORT in further.report["initial_model"]["source"]
    assert f"variables from {EXPORT}" in further.report["initial_model"]["note"]
