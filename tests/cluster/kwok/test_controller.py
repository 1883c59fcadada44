"""The controller on a real API server: what it creates, what it says, and who acts when there are two."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import training_job_definition
from tests.cluster.kwok.conftest import AddNodes
from tests.cluster.kwok.control_plane import ControlPlane
from tests.cluster.readiness import wait_until

from elasticdl.controller.service.leadership import LEASE_S, NAME
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import (
    CONFIG_MAP,
    EVENT,
    JOB,
    LEASE,
    POD,
    SECRET,
    TRAINING_JOB,
    Manifest,
)
from elasticdl.shared.kubernetes.names import QUEUES_LABEL

pytestmark = pytest.mark.timeout(180)
LIMIT_S = 40
MODEL = """
def custom_model(): ...
def loss(labels, predictions): ...
def optimizer(): ...
"""


@pytest.fixture
def api(plane: ControlPlane, add_nodes: AddNodes) -> Iterator[KubernetesApi]:
    """A cluster with two nodes, and the definition of TrainingJobs."""
    with contextlib.closing(KubernetesApi.connect(kubeconfig=str(plane.kubeconfig()))) as api:
        training_job_definition.provide(api)
        add_nodes(2, {"cpu": "8"})
        yield api


@pytest.fixture
def controller(plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts a controller; all of them are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        flags = [f"--kubeconfig={plane.kubeconfig()}", "--namespace=default", "--port=0"]
        with (tmp_path / f"controller-{len(started)}.log").open("wb") as log:
            command = [sys.executable, "-P", "-m", "elasticdl.controller.service", *flags]
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ})
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
    logs = [path.read_text() for path in tmp_path.glob("controller-*.log")]
    assert not [log for log in logs if "Traceback" in log], logs


def training_job(name: str, **spec: Any) -> Manifest:
    worker = {"min": 2, "max": 4, "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    return {
        "apiVersion": TRAINING_JOB.api_version,
        "kind": TRAINING_JOB.name,
        "metadata": {"name": name},
        "spec": {
            "image": "worker:1",
            "job": {"model_def": "model.py:custom_model", "training_data": "s3://data/train", "storage": "s3://jobs"},
            "model": {"files": {"model.py": MODEL}},
            "worker": worker,
            **spec,
        },
    }


def status_of(api: KubernetesApi, name: str) -> Manifest:
    found: Manifest = api.get(TRAINING_JOB, name).get("status") or {}
    return found


def wait_for(api: KubernetesApi, name: str, holds: Callable[[Manifest], bool]) -> Manifest:
    wait_until(lambda: holds(status_of(api, name)), lambda: f"{name}: {status_of(api, name)}", LIMIT_S)
    return status_of(api, name)


def test_a_job_is_created_with_everything_that_belongs_to_it(
    api: KubernetesApi, controller: Callable[[], subprocess.Popen[bytes]]
) -> None:
    controller()
    created = api.create(training_job("clicks"))
    status = wait_for(api, "clicks", lambda status: status.get("phase") == "Starting")
    job = api.get(JOB, status["job"])
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == (TRAINING_JOB.name, created["metadata"]["uid"])
    assert not job["spec"].get("suspend")
    config = api.get(CONFIG_MAP, status["job"])
    assert MODEL in config["data"].values()
    assert api.get(SECRET, status["job"])
    pods = {pod["metadata"]["labels"]["elasticdl.org/pod"] for pod in api.list(POD).items}
    assert pods == {"worker-0", "ps-0"}
    assert status["workersText"] == f"{status['workers']} (2-4)"
    wait_until(lambda: bool(api.list(EVENT, fields="reason=Created").items), lambda: "no event says so", LIMIT_S)


def test_a_job_that_does_not_fit_waits_and_says_why(
    api: KubernetesApi, controller: Callable[[], subprocess.Popen[bytes]]
) -> None:
    controller()
    huge = {"min": 1, "max": 1, "resources": {"requests": {"cpu": "9", "memory": "1Gi"}}}
    api.create(training_job("huge", worker=huge))
    status = wait_for(api, "huge", lambda status: "no node is large enough" in status.get("reason", ""))
    assert status["phase"] == "Waiting"
    api.create(training_job("wide", worker={**huge, "min": 9, "max": 9, "resources": {"requests": {"cpu": "2"}}}))
    wait_for(api, "wide", lambda status: "the cluster is too small" in status.get("reason", ""))
    assert not api.list(JOB).items


@pytest.mark.bench_cluster
def test_a_job_waits_for_a_queue_and_for_the_quota_of_its_namespace(
    api: KubernetesApi, controller: Callable[[], subprocess.Popen[bytes]]
) -> None:
    controller()
    api.create(training_job("queued", queue="team"))
    wait_for(api, "queued", lambda status: "there is no queue team" in status.get("reason", ""))
    metadata = {"name": "queues", "labels": {QUEUES_LABEL: "true"}}
    queues = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"team": "quota: {cpu: 6}"}}
    api.create(queues)
    wait_for(api, "queued", lambda status: status.get("phase") == "Starting")
    api.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "compute"},
            "spec": {"hard": {"requests.cpu": "7"}},
        }
    )
    api.create(training_job("limited"))
    wait_for(api, "limited", lambda status: "ResourceQuota default/compute" in status.get("reason", ""))


@pytest.mark.bench_cluster
def test_a_model_that_can_not_be_used_is_said_on_the_object(
    api: KubernetesApi, controller: Callable[[], subprocess.Popen[bytes]]
) -> None:
    controller()
    api.create(training_job("broken", model={"files": {"model.py": "def custom_model(): ...\n"}}))
    status = wait_for(api, "broken", lambda status: "loss" in status.get("reason", ""))
    assert (status["phase"], status["reason"].startswith("model.py does not define 'loss'")) == ("Waiting", True)
    assert not api.list(JOB).items


@pytest.mark.bench_cluster
def test_a_job_that_is_not_ours_is_left_alone(
    api: KubernetesApi, controller: Callable[[], subprocess.Popen[bytes]]
) -> None:
    controller()
    api.create(training_job("theirs", managedBy="example.org/another"))
    api.create(training_job("ours"))
    wait_for(api, "ours", lambda status: status.get("phase") == "Starting")
    assert status_of(api, "theirs") == {}
    assert len(api.list(JOB).items) == 1


@pytest.mark.bench_cluster
def test_an_interrupted_creation_is_repeated(
    api: KubernetesApi, controller: Callable[[], subprocess.Popen[bytes]]
) -> None:
    first = controller()
    api.create(training_job("clicks"))
    job = wait_for(api, "clicks", lambda status: status.get("phase") == "Starting")["job"]
    first.kill()
    first.wait()
    former = api.get(JOB, job)["metadata"]["uid"]
    api.patch(JOB, job, {"spec": {"suspend": True}})  # As a controller leaves it that ends in between.
    controller()

    def is_new() -> bool:
        found = [each for each in api.list(JOB).items if each["metadata"]["uid"] != former]
        return bool(found) and not found[0]["spec"].get("suspend")

    wait_until(is_new, lambda: f"{api.list(JOB).items}", LIMIT_S + LEASE_S)


def test_one_of_two_controllers_acts_and_the_other_takes_over(
    api: KubernetesApi, controller: Callable[[], subprocess.Popen[bytes]]
) -> None:
    first = controller()
    wait_until(lambda: bool(holder(api)), lambda: "nobody holds the lease", LIMIT_S)
    held = holder(api)
    controller()
    api.create(training_job("one"))
    wait_for(api, "one", lambda status: status.get("phase") == "Starting")
    assert holder(api) == held
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=30) == 0
    wait_until(lambda: holder(api) not in ("", held), lambda: "nobody takes over", LIMIT_S)
    api.create(training_job("two"))
    wait_for(api, "two", lambda status: status.get("phase") == "Starting")
    assert len(api.list(JOB).items) == 2


def holder(api: KubernetesApi) -> str:
    found = [each for each in api.list(LEASE).items if each["metadata"]["name"] == NAME]
    return str(found[0]["spec"].get("holderIdentity") or "") if found else ""
