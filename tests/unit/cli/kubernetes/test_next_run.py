"""The objects of a job that is resumed, and the file that holds them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.kubernetes.test_manifests import TRAIN, environment, planned

from elasticdl.cli import exit_codes
from elasticdl.cli.kubernetes.ended_jobs.resume import next_config_map, next_job, next_secret
from elasticdl.cli.kubernetes.manifests.job_objects import RETRIES
from elasticdl.cli.kubernetes.new_job.start import start
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.options import KubernetesFlags

RUN = "ba9876543210"


@pytest.fixture
def former() -> Manifest:
    """A Job as the API server returns it."""
    job = planned().job("team")
    job["metadata"] |= {"uid": "1", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    job["spec"] |= {"suspend": False, "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "1"}}}
    job["spec"]["template"]["metadata"]["labels"] |= {
        "batch.kubernetes.io/controller-uid": "1",
        "batch.kubernetes.io/job-name": "job",
        "controller-uid": "1",
        "job-name": "job",
    }
    job["status"] = {"succeeded": 1}
    return job


def test_the_next_job_differs_in_its_run_alone(former: Manifest) -> None:
    first, new = planned().job("team"), next_job(former, RUN)
    pod = new["spec"]["template"]["spec"]
    containers: list[dict[str, Any]] = [*pod["initContainers"], *pod["containers"]]
    assert [environment(each)["ELASTICDL_RUN"] for each in containers] == [RUN] * 3
    for container in containers:
        (run,) = (each for each in container["env"] if each["name"] == "ELASTICDL_RUN")
        run["value"] = "0123456789ab"
    first["metadata"]["name"] = new["metadata"]["name"]
    assert new["metadata"]["labels"].keys() == first["metadata"]["labels"].keys()
    assert new["spec"].keys() == first["spec"].keys()
    assert new["spec"]["suspend"]
    assert (
        new["spec"]["template"]["metadata"]["labels"].keys() == first["spec"]["template"]["metadata"]["labels"].keys()
    )
    assert [each["image"] for each in containers] == ["worker:1"] * 3


def test_the_next_job_may_fail_as_often_as_the_first(former: Manifest) -> None:
    former["spec"]["backoffLimit"] = 3  # A master has ended the job after three failures.
    assert next_job(former, RUN)["spec"]["backoffLimit"] == RETRIES


def test_the_next_job_gives_the_master_more_memory_if_it_lacked_that(former: Manifest) -> None:
    def memory(job: Manifest) -> list[str]:
        pod = job["spec"]["template"]["spec"]
        return [each["resources"]["limits"]["memory"] for each in (*pod["initContainers"], *pod["containers"])]

    assert memory(next_job(former, RUN)) == memory(former) == ["4096Mi", "4096Mi", "1024Mi"]
    assert memory(next_job(former, RUN, raises_memory=True)) == ["6144Mi", "6144Mi", "1536Mi"]


def test_model_and_token_stay() -> None:
    manifest = planned()
    config_map = next_config_map(manifest.config_map("team"), "{}")
    assert config_map["data"] == {**manifest.config_map("team")["data"], "submission.json": "{}"}
    stored = {**manifest.secret("team"), "data": {"ELASTICDL_TOKEN": "c2VjcmV0"}}
    assert next_secret(stored)["data"] == stored["data"]


def test_only_its_owner_can_read_a_file_of_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    file = tmp_path / "job.yaml"
    pods = KubernetesFlags(yaml=str(file), namespace="team", image_name="worker:1")
    flags = TRAIN.__class__(model_def=TRAIN.model_def, training_data=TRAIN.training_data, storage="s3://jobs/all")
    assert start(flags, pods, 1.0) == exit_codes.SUCCESS
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    objects = list(yaml.safe_load_all(file.read_text()))
    assert [each["kind"] for each in objects] == ["ConfigMap", "Secret", "Job"]
    assert "suspend" not in objects[-1]["spec"]
