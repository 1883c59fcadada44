"""TrainingJobs on a real node: the controller starts them, scales them while they run, and says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import BUCKET, Deployment
from tests.cluster.readiness import wait_until
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.scenarios.conftest import Note, note
from tests.cluster.training_job_definition import provide
from tests.e2e.models import slowly, write_data
from tests.e2e.test_synchronous import MODEL

from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import EVENT, POD, TRAINING_JOB, Manifest
from elasticdl.shared.storage import open_store
from elasticdl.zoo import shipped_model_zoo

END_LIMIT_S, CHANGE_LIMIT_S = 400, 180
BATCH_S = 0.5
OVERHEAD_M = 60
"""Requests of a job's master and ps, in thousandths of a CPU, and a little more."""
BROKEN = """
import nothing_here
def custom_model(): ...
def loss(labels, predictions): ...
def optimizer(): ...
"""
PS = {"min": 1, "max": 1, "resources": {"requests": {"cpu": "40m", "memory": "300Mi"}, "limits": {"memory": "1Gi"}}}
MASTER = {"resources": {"requests": {"cpu": "10m", "memory": "200Mi"}, "limits": {"cpu": "2", "memory": "1500Mi"}}}
__all__ = ["note"]
pytestmark = [pytest.mark.usefixtures("service_images"), pytest.mark.timeout(900)]


@dataclass
class Controller:
    """The controller, as a process of this machine."""

    cluster: Cluster
    deployment: Deployment
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            "-P",
            "-m",
            "elasticdl.controller.service",
            f"--kubeconfig={self.cluster.kubeconfig}",
        ]
        command += [f"--namespace={self.deployment.namespace}", "--port=0"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **self.deployment.environment}, stdout=log, stderr=log
            )

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


@dataclass(frozen=True)
class Jobs:
    """The TrainingJobs of a namespace."""

    api: KubernetesApi
    controller: Controller

    def create(self, name: str, data: str, **spec: Any) -> None:
        zoo = shipped_model_zoo()
        assert zoo is not None
        text = slowly((zoo / "deepfm.py").read_text(), BATCH_S)
        job = {
            "model_def": "clicks.py:custom_model",
            "model_params": "ids_per_category=1000;hidden=(64,32)",
            "training_data": f"{data}/train",
            "storage": f"s3://{BUCKET}/jobs",
            "minibatch_size": 256,
            "num_minibatches_per_task": 4,
        }
        manifest = {
            "apiVersion": TRAINING_JOB.api_version,
            "kind": TRAINING_JOB.name,
            "metadata": {"name": name},
            "spec": {
                "job": job | spec.pop("job", {}),
                "model": {"files": {"clicks.py": text}},
                "master": MASTER,
                "ps": PS,
                **spec,
            },
        }
        self.api.create(manifest)

    def status(self, name: str) -> Manifest:
        found: Manifest = self.api.get(TRAINING_JOB, name).get("status") or {}
        return found

    def wait(self, name: str, holds: Callable[[Manifest], bool], limit_s: float = CHANGE_LIMIT_S) -> Manifest:
        wait_until(
            lambda: holds(self.status(name)),
            lambda: f"{name}: {self.status(name)}\n{self.controller.log.read_text()[-3000:]}",
            limit_s,
        )
        return self.status(name)

    def wait_for_workers(self, name: str, count: int) -> Manifest:
        return self.wait(name, lambda status: status.get("workers") == count)

    def wait_for_end(self, name: str) -> Manifest:
        ended = {"Succeeded", "Failed", "Stopped", "Invalid"}
        return self.wait(name, lambda status: status.get("phase") in ended, END_LIMIT_S)

    def events(self, name: str) -> list[str]:
        found = self.api.list(EVENT, fields=f"involvedObject.name={name}").items
        return [each["reason"] for each in sorted(found, key=lambda each: each["metadata"]["creationTimestamp"])]


@dataclass
class Timeline:
    """When what was seen first of a job's start, in seconds after its creation."""

    jobs: Jobs
    created_s: float
    steps_s: dict[str, float] = field(default_factory=dict)

    def note(self, what: str, time_s: float = 0.0) -> None:
        self.steps_s.setdefault(what, round((time_s or time.time()) - self.created_s, 2))

    def look(self, job: str) -> None:
        """Look at the pods of a job."""
        pods = self.jobs.api.list(POD, labels=f"app.kubernetes.io/instance={job}").items
        for pod in pods:
            name = pod["metadata"]["name"].removeprefix(f"{job}-")
            name = "master" if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "master" else name
            self.note(f"{name} created")
            if pod["spec"].get("nodeName"):
                self.note(f"{name} has a node")
            status = pod["status"]
            for one in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
                for state in one["state"]:
                    if state != "waiting":
                        self.note(f"{name}/{one['name']} {state}")
        if pods and all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in pods):
            self.note("all its pods have ended")

    def running(self, labels: str) -> int:
        """How many pods run and stay."""
        pods = self.jobs.api.list(POD, labels=labels).items
        return sum(
            pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in pods
        )

    def read_log(self, printed: str) -> None:
        """Note the first event of each type; the log has times of the day."""
        for line in printed.splitlines():
            parts = line.split()
            if len(parts) < 4 or not parts[0].startswith("#"):
                continue
            hours, minutes, seconds = parts[1].split(":")
            day_s = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
            created = time.localtime(self.created_s)
            start_s = created.tm_hour * 3600 + created.tm_min * 60 + created.tm_sec + self.created_s % 1
            self.note(f"event {parts[3]} of {parts[2]}", self.created_s + (day_s - start_s) % 86_400)


@pytest.fixture(scope="module")
def training_job_definition(cluster: Cluster) -> None:
    api = KubernetesApi.connect(kubeconfig=str(cluster.kubeconfig))
    provide(api)


@pytest.fixture
def jobs(
    cluster: Cluster, elasticdl_namespace: Deployment, training_job_definition: None, tmp_path: Path
) -> Iterator[Jobs]:
    """The controller runs as long as the test. Its jobs are deleted afterwards."""
    controller = Controller(cluster, elasticdl_namespace, tmp_path / "controller.log")
    controller.start()
    api = KubernetesApi.connect(kubeconfig=str(cluster.kubeconfig), namespace=elasticdl_namespace.namespace)
    try:
        yield Jobs(api, controller)
    finally:
        if controller.process is not None and controller.process.poll() is None:
            assert controller.end(signal.SIGTERM) == 0
        for each in api.list(TRAINING_JOB).items:
            api.delete(TRAINING_JOB, each["metadata"]["name"])


@contextmanager
def killed_again_and_again(controller: Controller, every_s: float) -> Iterator[None]:
    """Within the context, the controller is killed after each ``every_s`` seconds, and started again."""
    is_over = threading.Event()

    def kill() -> None:
        while not is_over.wait(every_s):
            controller.end(signal.SIGKILL)
            controller.start()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def worker(cpu_m: int, least: int, most: int) -> Manifest:
    requests = {"cpu": f"{cpu_m}m", "memory": "900Mi"}
    return {"min": least, "max": most, "resources": {"requests": requests, "limits": {"cpu": "2", "memory": "1500Mi"}}}


def test_a_job_is_started_followed_and_exact(jobs: Jobs, user: CommandLine, click_data: str) -> None:
    jobs.create("single", click_data, worker=worker(80, 1, 2), job={"num_epochs": 2})
    started = jobs.wait("single", lambda status: status.get("phase") == "Running")
    assert started["workersText"].endswith("(1-2)"), started
    ended = jobs.wait_for_end("single")
    assert (ended["phase"], ended["progress"]) == ("Succeeded", 100), ended
    conditions = {each["type"]: each["status"] for each in ended["conditions"]}
    assert conditions["Complete"] == "True", ended
    assert float(ended["metrics"]["loss"]) > 0, ended
    report = user.report(ended["job"])
    assert report["audit"]["exact"], report
    assert "Created" in jobs.events("single")


@pytest.mark.bench_cluster
def test_an_invalid_model_is_said_on_the_object(jobs: Jobs, click_data: str) -> None:
    jobs.create("broken", click_data, worker=worker(80, 1, 1), model={"files": {"clicks.py": BROKEN}})
    status = jobs.wait_for_end("broken")
    assert (status["phase"], "nothing_here" in status["reason"]) == ("Failed", True), status


@pytest.mark.bench_cluster
def test_two_jobs_share_a_full_node_while_the_controller_is_killed(
    jobs: Jobs, user: CommandLine, click_data: str, cluster: Cluster
) -> None:
    cpu_m = (cluster.free_milli_cpus() - 2 * OVERHEAD_M) // 4
    jobs.create("first", click_data, worker=worker(cpu_m, 1, 8), job={"num_epochs": 30})
    jobs.wait_for_workers("first", 4)
    with killed_again_and_again(jobs.controller, 20.0):
        entered_s = time.monotonic()
        jobs.create("second", click_data, worker=worker(cpu_m, 1, 8), job={"num_epochs": 4})
        jobs.wait("second", lambda status: status.get("phase") == "Running" and status.get("workers", 0) >= 1)
        assert time.monotonic() - entered_s < CHANGE_LIMIT_S
        assert jobs.status("first")["workers"] >= 1
        second = jobs.wait_for_end("second")
        assert second["phase"] == "Succeeded", second
    jobs.wait_for_workers("first", 4)
    first = jobs.wait_for_end("first")
    assert first["phase"] == "Succeeded", first
    for each in (first, second):
        report = user.report(each["job"])
        assert report["audit"]["exact"], report


@pytest.mark.bench_cluster
def test_a_second_job_on_a_full_node_trains_soon_and_the_first_is_whole_again_soon(
    jobs: Jobs, user: CommandLine, click_data: str, cluster: Cluster, note: Note
) -> None:
    """Notes when each step of the second job's start was reached, in seconds after its creation."""
    cpu_m = (cluster.free_milli_cpus() - 2 * OVERHEAD_M) // 4
    jobs.create("first", click_data, worker=worker(cpu_m, 1, 8), job={"num_epochs": 60})
    jobs.wait_for_workers("first", 4)
    jobs.wait("first", lambda status: status.get("progress", 0) >= 1)
    created_s = time.time()
    jobs.create("second", click_data, worker=worker(cpu_m, 1, 8), job={"num_epochs": 1})
    second, timeline = jobs.wait("second", lambda status: bool(status.get("job")))["job"], Timeline(jobs, created_s)

    def has_ended(status: Manifest) -> bool:
        timeline.look(second)
        return status.get("phase") == "Succeeded"

    jobs.wait("second", has_ended, END_LIMIT_S)
    timeline.look(second)
    workers = f"app.kubernetes.io/instance={jobs.status('first')['job']},app.kubernetes.io/component=worker"
    wait_until(lambda: timeline.running(workers) == 4, lambda: f"{jobs.status('first')}", CHANGE_LIMIT_S)
    timeline.note("the first is whole again")
    timeline.read_log(user.run("events", second))
    note(load=os.getloadavg()[0], steps_s=timeline.steps_s)
    report = user.report(second)
    assert report["audit"]["exact"], report


@pytest.mark.bench_cluster
def test_a_ring_has_no_ps_and_is_scaled(
    jobs: Jobs, user: CommandLine, elasticdl_namespace: Deployment, tmp_path: Path
) -> None:
    data = f"s3://{BUCKET}/scaled-ring/train.csv"
    open_store(data, elasticdl_namespace.storage()).write(data, write_data(tmp_path, 240))
    job = {
        "model_def": "model.py",
        "model_params": "",
        "training_data": data,
        "distribution_strategy": "AllreduceStrategy",
        "minibatch_size": 8,
        "num_epochs": 6,
    }
    jobs.create("ring", "", worker=worker(80, 1, 3), job=job, model={"files": {"model.py": slowly(MODEL, BATCH_S)}})
    jobs.wait_for_workers("ring", 3)
    for wanted in (1, 2):
        jobs.wait("ring", lambda status: status.get("progress", 0) >= 1)
        jobs.api.patch(TRAINING_JOB, "ring", {"spec": {"worker": {"replicas": wanted}}})
        jobs.wait_for_workers("ring", wanted)
    ended = jobs.wait_for_end("ring")
    assert (ended["phase"], ended["psText"]) == ("Succeeded", "0 (0-0)"), ended
    report = user.report(ended["job"])
    assert report["audit"]["exact"], report


@pytest.mark.bench_cluster
def test_a_suspended_job_gives_all_its_pods_away_and_continues_from_there(
    jobs: Jobs, user: CommandLine, click_data: str, cluster: Cluster
) -> None:
    jobs.create("paused", click_data, worker=worker(80, 1, 2), job={"num_epochs": 6})
    running = jobs.wait("paused", lambda status: status.get("progress", 0) >= 10)
    jobs.api.patch(TRAINING_JOB, "paused", {"spec": {"suspend": True}})
    jobs.wait("paused", lambda status: status.get("phase") == "Suspended")
    labels = f"app.kubernetes.io/instance={running['job']}"

    def alive() -> list[str]:
        pods = cluster.core.list_namespaced_pod(jobs.api.namespace, label_selector=labels).items
        return [pod.metadata.name for pod in pods if pod.status.phase in ("Pending", "Running")]

    wait_until(lambda: not alive(), lambda: f"pods of a suspended job: {alive()}", CHANGE_LIMIT_S)
    jobs.api.patch(TRAINING_JOB, "paused", {"spec": {"suspend": False}})
    ended = jobs.wait_for_end("paused")
    assert ended["phase"] == "Succeeded", ended
    report = user.report(ended["job"])
    assert report["audit"]["exact"], report
    assert {"Created", "Suspended", "Resumed"} <= set(jobs.events("paused"))
