"""The objects of a job that is resumed: the API server has to accept what follows from its own answers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.readiness import wait_until
from tests.cluster.sites import POD_IMAGE

from elasticdl.cli import exit_codes
from elasticdl.cli.jobs.export_settings import ExportSettings
from elasticdl.cli.jobs.resume_changes import ResumeChanges
from elasticdl.cli.kubernetes.ended_jobs.export import export
from elasticdl.cli.kubernetes.ended_jobs.resume import resume
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.new_job.creation import create_job
from elasticdl.cli.kubernetes.new_job.planning import Identity, plan_job
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import SERVICE_ACCOUNT, SUBMISSION_FILE
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.names import Incarnation

FORMER_RUN = Incarnation("0123456789ab")


@pytest.fixture
def job(cluster: Cluster, namespace: str) -> Iterator[KubernetesJobHandle]:
    """A job whose pod waits for a node that does not exist."""
    with contextlib.closing(KubernetesApi.connect(kubeconfig=str(cluster.kubeconfig), namespace=namespace)) as api:
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": SERVICE_ACCOUNT}})
        flags = TrainFlags(
            model_def="mnist_functional_api.custom_model",
            training_data="s3://data/mnist",
            platform="kubernetes",
            seed=7,
            storage="s3://jobs/all",
        )
        pods = KubernetesFlags(image_name=POD_IMAGE, node_selector="none=such")
        manifest = plan_job(flags, pods, {}, Identity(run=FORMER_RUN, token="secret", created_s=1.0))
        create_job(api, manifest)
        yield KubernetesJobHandle(api, manifest.settings.job, is_default=True)


def end(job: KubernetesJobHandle) -> Manifest:
    """Kubernetes ends the job; returns its Job."""
    job.api.patch(kinds.JOB, job.job, {"spec": {"activeDeadlineSeconds": 1}})
    wait_until(lambda: not job.condition().is_running, lambda: "the Job does not end")
    return job.job_object()


def test_a_running_job_is_neither_resumed_nor_exported(job: KubernetesJobHandle) -> None:
    with pytest.raises(UserError, match=r"is pending, so it can't be resumed"):
        resume(job, ResumeChanges(), detach=True)
    with pytest.raises(UserError, match=r"is pending, so it can't be exported"):
        export(job, ExportSettings())
    assert job.condition().is_running


def test_a_resume_creates_all_objects_again(job: KubernetesJobHandle) -> None:
    former = end(job)
    secret = job.api.get(kinds.SECRET, job.job)["data"]
    assert resume(job, ResumeChanges(epochs=3), detach=True) == exit_codes.SUCCESS
    new = job.job_object()
    assert new["metadata"]["uid"] != former["metadata"]["uid"]
    assert job.condition().is_running
    config_map = job.api.get(kinds.CONFIG_MAP, job.job)
    submission = json.loads(config_map["data"][SUBMISSION_FILE])
    assert submission["resumption"] == {
        "ps": 0,
        "epochs": 3,
        "output": "",
        "rebuild_bus": False,
        "skip_tasks": None,
    }
    assert submission["run"] != FORMER_RUN
    assert submission["run"] in json.dumps(new["spec"]["template"]) and FORMER_RUN not in json.dumps(new["spec"])
    assert job.api.get(kinds.SECRET, job.job)["data"] == secret
    assert config_map["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"]
    wait_until(lambda: len(job.masters()) == 1, lambda: "Kubernetes creates no pod")
