"""A job on Kubernetes from end to end: data, snapshots and model are in object storage, and nothing else is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import BUCKET, Deployment
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.service_images import service_image
from tests.cluster.test_service_images import RESTRICTED

JOB_LIMIT_S = 400
FLAGS = [
    "--model_def=deepfm.custom_model",
    "--model_params=hidden=(64,32)",
    "--num_epochs=1",
    "--num_workers=2",
    "--num_ps_pods=1",
    "--worker_resource_request=cpu=80m,memory=900Mi",
    "--worker_resource_limit=cpu=2,memory=1500Mi",
    "--ps_resource_request=cpu=40m,memory=300Mi",
    "--ps_resource_limit=cpu=2,memory=1Gi",
    "--master_resource_request=cpu=10m,memory=200Mi",
    "--master_resource_limit=cpu=2,memory=1500Mi",
]

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


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("service_images")
def test_deepfm_trains_and_its_export_predicts_without_this_package(
    cluster: Cluster, elasticdl_namespace: Deployment, click_data: str, tmp_path: Path
) -> None:
    command_line = CommandLine(kubeconfig=cluster.kubeconfig, namespace=elasticdl_namespace.namespace, folder=tmp_path)
    export = f"s3://{BUCKET}/exports/clicks"
    created = command_line.run(
        *("train", "--platform=kubernetes", "--detach", "--job_name=clicks", *FLAGS),
        *(f"--training_data={click_data}/train", f"--output={export}"),
    )
    (job,) = set(re.findall(r"clicks-[0-9a-f]{6}", created))
    report = command_line.wait_for_end(job, JOB_LIMIT_S)
    assert report["state"] == "succeeded", report
    assert report["audit"]["exact"], report

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
