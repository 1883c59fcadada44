"""Jobs on Kubernetes that use the model of another job: evaluation, prediction, and more training."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import BUCKET, Deployment
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.test_training import FLAGS, JOB_LIMIT_S

from elasticdl.shared.storage import open_store

pytestmark = [pytest.mark.usefixtures("service_images"), pytest.mark.timeout(900)]
MODEL = [each for each in FLAGS if not each.startswith("--num_")]


@pytest.fixture
def user(cluster: Cluster, elasticdl_namespace: Deployment, tmp_path: Path) -> CommandLine:
    return CommandLine(kubeconfig=cluster.kubeconfig, namespace=elasticdl_namespace.namespace, folder=tmp_path)


def finished(user: CommandLine, command: str, *flags: str, workers: int = 1) -> tuple[str, dict[str, Any]]:
    """The id and the report of a job that has succeeded."""
    created = user.run(command, "--platform=kubernetes", "--detach", *MODEL, f"--num_workers={workers}", *flags)
    (job,) = set(re.findall(r"Created job (\S+) in namespace", created))
    report = user.wait_for_end(job, JOB_LIMIT_S)
    assert report["state"] == "succeeded", report
    assert report["audit"]["exact"], report
    return job, report


def test_the_model_of_a_job_is_evaluated_used_and_trained_further(
    cluster: Cluster, elasticdl_namespace: Deployment, click_data: str, user: CommandLine
) -> None:
    export = f"s3://{BUCKET}/exports/trained"
    data = (f"--training_data={click_data}/train", f"--validation_data={click_data}/test")
    job, trained = finished(user, "train", "--num_epochs=1", "--job_name=trained", f"--output={export}", *data)

    _, evaluated = finished(user, "evaluate", f"--model={job}", data[1])
    assert evaluated["metrics"] == pytest.approx(trained["metrics"], abs=1e-5)

    output = f"s3://{BUCKET}/predictions"
    job, _ = finished(
        user, "predict", f"--model={export}", f"--prediction_data={click_data}/test", f"--output={output}", workers=2
    )
    store = open_store(output, elasticdl_namespace.storage())
    files = [each.uri for each in store.list(output + "/") if each.uri.endswith(".parquet")]
    predicted = sum(parquet.read_metadata(io.BytesIO(store.read(uri))).num_rows for uri in files)
    assert predicted == evaluated["plan"]["validation_records"]
    masters = f"batch.kubernetes.io/job-name={job}"
    (pod,) = cluster.core.list_namespaced_pod(user.namespace, label_selector=masters).items
    message = pod.status.container_statuses[0].state.terminated.message
    assert message == f"The job has succeeded.\n{predicted:,} predictions are in {output}."

    _, further = finished(user, "train", "--num_epochs=1", "--initial_model=trained", data[0])
    assert further["audit"]
