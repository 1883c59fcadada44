"""A job trains every batch exactly once, whatever happens to its pods, its servers and its node."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import SERVERS, Deployment
from tests.cluster.readiness import wait_until
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.scenarios.conftest import Note
from tests.cluster.scenarios.faults import Faults, PodSelector
from tests.cluster.scenarios.lost_node import LostNode
from tests.cluster.scenarios.training_log import TrainingLog, reading
from tests.e2e.models import slowly

from elasticdl.shared.messages.events import ExitCause, PodExited, PodPending, PodStarted, TermStarted
from elasticdl.shared.process.exit_codes import EXIT_AWAY
from elasticdl.zoo import shipped_model_zoo

WORKERS, PS = 2, 2
BATCH_S = 0.1
"""Seconds that a batch takes at least, so that the job lasts as long on any machine."""
EPOCHS = 16
RECOVERY_LIMIT_S, JOB_LIMIT_S = 240, 1200
API_OUTAGE_S = 15
FLAGS = [
    "--model_def=clicks.custom_model",
    "--model_params=ids_per_category=1000;hidden=(64,32)",
    "--minibatch_size=64",
    "--num_minibatches_per_task=4",
    f"--num_workers={WORKERS}",
    f"--num_ps_pods={PS}",
    "--worker_resource_request=cpu=80m,memory=900Mi",
    "--worker_resource_limit=cpu=2,memory=1500Mi",
    "--ps_resource_request=cpu=40m,memory=300Mi",
    "--ps_resource_limit=cpu=2,memory=1Gi",
    "--master_resource_request=cpu=10m,memory=200Mi",
    "--master_resource_limit=cpu=2,memory=1500Mi",
]


BALLAST = """
_ballast = []


def _grow():
    if len(_ballast) < 140:
        _ballast.append(b"x" * (10 << 20))
"""
"""1,400 MiB, 10 with each batch: more than a worker may have at first. What it maps from files does not count."""


class Experiment:
    """Faults of a running job, one after the other, and how long it took to recover from each.

    Args:
        faults: of its namespace and node.
        commands: of its user.
        log: its event log.
        job: its id.
        note: writes figures down.
    """

    def __init__(self, faults: Faults, commands: CommandLine, log: TrainingLog, job: str, note: Note) -> None:
        self._faults = faults
        self._commands = commands
        self.log = log
        self.job = job
        self.note = note

    def replaces(self, name: str, fault: Callable[[PodSelector], None], selector: PodSelector) -> None:
        """A fault after which a new pod takes the place of the former one."""
        former = self._faults.uid(selector)
        self.happens(name, lambda: fault(selector), lambda: self._faults.wait_for_replacement(selector, former))

    def happens(
        self, name: str, fault: Callable[[], object], wait: Callable[[], object], *, started_s: float = 0.0
    ) -> None:
        """A fault.

        Args:
            name: of the fault, for the table.
            fault: lets it happen.
            wait: returns when what failed is there again.
            started_s: when it began to happen, seconds since the epoch; 0: now.
        """
        started_s = started_s or time.time()
        fault()
        wait()
        running_s = time.time()
        trains_s = self.log.wait_for_progress(running_s, WORKERS, RECOVERY_LIMIT_S)
        self.note(
            fault=name,
            running_after_s=round(running_s - started_s, 1),
            trains_after_s=round(trains_s - started_s, 1),
            longest_pause_s=round(self.log.longest_pause_s(started_s, trains_s), 1),
        )

    def pod(self, name: str) -> PodSelector:
        """A pod of the job."""
        return PodSelector.of(self.job, name)

    def kills_process_of_master(self) -> None:
        """The process of the master is killed, and its container goes on."""
        terms = self.log.count(TermStarted)
        self.happens(
            "process of the master killed",
            lambda: self._faults.kill_child(self.pod("master")),
            lambda: self.log.wait_for(
                lambda: self.log.count(TermStarted) > terms, RECOVERY_LIMIT_S, "a master has taken over"
            ),
        )

    def ends_exactly(self) -> None:
        """The job succeeds, and its audit is exact."""
        report = self._commands.wait_for_end(self.job, JOB_LIMIT_S)
        events = [record.event for record in self.log.records()]
        started = {(event.pod, event.instance) for event in events if isinstance(event, PodStarted)}
        self.note(replaced_pods=len(started) - WORKERS - PS)
        assert report["state"] == "succeeded", report
        assert report["audit"]["exact"], report


@pytest.fixture
def faults(cluster: Cluster, elasticdl_namespace: Deployment) -> Faults:
    """Faults of the namespace and the node."""
    return Faults(core=cluster.core, namespace=elasticdl_namespace.namespace, site=cluster.node_site())


@pytest.fixture
def command_line(cluster: Cluster, elasticdl_namespace: Deployment, tmp_path: Path) -> CommandLine:
    """The commands of a user whose folder has the model ``clicks``: DeepFM, slowed down."""
    zoo = shipped_model_zoo()
    assert zoo is not None
    (tmp_path / "clicks.py").write_text(slowly((zoo / "deepfm.py").read_text(), BATCH_S))
    return CommandLine(
        kubeconfig=cluster.kubeconfig,
        namespace=elasticdl_namespace.namespace,
        folder=tmp_path,
        environment=elasticdl_namespace.environment,
    )


@pytest.fixture
def experiment(
    elasticdl_namespace: Deployment, command_line: CommandLine, faults: Faults, click_data: str, note: Note
) -> Iterator[Experiment]:
    """A job that trains with all workers."""
    job = start(command_line, "faults", *FLAGS, f"--training_data={click_data}/train", f"--num_epochs={EPOCHS}")
    faults.wait_until_ready(PodSelector.of(job, "master"))
    with reading(elasticdl_namespace.environment["ELASTICDL_NATS_URL"], job) as log:
        log.wait_for_progress(0.0, WORKERS, RECOVERY_LIMIT_S)
        yield Experiment(faults, command_line, log, job, note)


def start(command_line: CommandLine, name: str, *flags: str) -> str:
    """Start a job; returns its id."""
    created = command_line.run("train", "--platform=kubernetes", "--detach", f"--job_name={name}", *flags)
    (job,) = {found.group() for found in re.finditer(rf"{name}-[0-9a-f]{{6}}", created)}
    return job


@pytest.mark.bench_cluster
@pytest.mark.timeout(2 * JOB_LIMIT_S)
@pytest.mark.usefixtures("service_images")
def test_a_job_recovers_from_faults_of_its_pods_and_servers(experiment: Experiment, faults: Faults) -> None:
    for pod in ("worker-0", "ps-0", "master"):
        experiment.replaces(f"{pod} deleted", faults.delete, experiment.pod(pod))
    for pod in ("worker-1", "ps-1", "master"):
        experiment.replaces(f"{pod} killed", faults.kill, experiment.pod(pod))
    for server in SERVERS:
        experiment.replaces(f"{server} deleted", faults.delete, PodSelector.server(server))
    experiment.ends_exactly()


@pytest.mark.bench_cluster
@pytest.mark.timeout(2 * JOB_LIMIT_S)
@pytest.mark.usefixtures("service_images")
def test_a_job_recovers_from_faults_of_its_node(experiment: Experiment, faults: Faults) -> None:
    worker, master = experiment.pod("worker-0"), experiment.pod("master")
    experiment.kills_process_of_master()
    experiment.happens("API server killed", partial(faults.kill_program, "kube-apiserver"), faults.wait_for_node)
    for program in ("containerd", "kubelet"):

        def kill_both(selector: PodSelector, program: str = program) -> None:
            faults.kill_program(program)
            faults.kill(selector)

        experiment.replaces(f"{program} and worker-1 killed", kill_both, experiment.pod("worker-1"))

    def delete_during_outage() -> None:
        with faults.api_unreachable():
            faults.delete(worker)
            time.sleep(API_OUTAGE_S)

    former = faults.uid(worker)
    experiment.happens(
        "worker-0 deleted while pods can't reach the API server",
        delete_during_outage,
        lambda: faults.wait_for_replacement(worker, former),
    )

    def drain() -> None:
        with faults.drained():
            pass

    former = faults.uid(master)
    experiment.happens("node drained", drain, lambda: faults.wait_for_replacement(master, former))

    def refuse_connections() -> None:
        with faults.nats_url("nats://wrong-token@nats:4222"):
            faults.delete(master)
            assert faults.wait_for_failed_init(master) == EXIT_AWAY

    former = faults.uid(master)
    experiment.happens(
        "NATS refuses the token of a new master",
        refuse_connections,
        lambda: faults.wait_for_replacement(master, former),
    )
    experiment.ends_exactly()


@pytest.mark.bench_cluster
@pytest.mark.timeout(2 * JOB_LIMIT_S)
@pytest.mark.usefixtures("service_images")
def test_a_job_recovers_from_the_loss_of_its_node(experiment: Experiment, faults: Faults) -> None:
    """No client does anything for the job. NATS and MinIO are on the node, too; an administrator replaces them."""
    master = experiment.pod("master")
    pods = [experiment.pod(name) for name in ("master", *(f"worker-{n}" for n in range(WORKERS)), "ps-0", "ps-1")]
    former = faults.uid(master)
    uids = [faults.uid(pod) for pod in pods]
    started_s = time.time()
    with LostNode(core=faults.core, site=faults.site).lost(uids):
        for server in SERVERS:
            faults.delete(PodSelector.server(server))

        def wait() -> None:
            faults.wait_for_replacement(master, former)
            experiment.note(fault="node lost", successor_created_after_s=faults.created_s(master) - started_s)

        experiment.happens("node lost", lambda: None, wait, started_s=started_s)
        experiment.ends_exactly()


@pytest.mark.bench_cluster
@pytest.mark.timeout(JOB_LIMIT_S)
@pytest.mark.usefixtures("service_images")
def test_a_worker_that_runs_out_of_memory_gets_more(
    elasticdl_namespace: Deployment, command_line: CommandLine, click_data: str, note: Note
) -> None:
    model = command_line.folder / "clicks.py"
    model.write_text(model.read_text().replace("import os, time\n", "import os, time\n    _grow()\n") + BALLAST)
    flags = [*FLAGS, f"--training_data={click_data}/train", "--num_workers=1", "--worker_resource_limit=memory=1Gi"]
    job = start(command_line, "memory", *flags)
    report = command_line.wait_for_end(job, JOB_LIMIT_S)
    with reading(elasticdl_namespace.environment["ELASTICDL_NATS_URL"], job) as log:

        def killed_s() -> list[float]:
            exits = [(record.time_s, record.event) for record in log.records() if isinstance(record.event, PodExited)]
            return [time_s for time_s, event in exits if event.cause is ExitCause.OUT_OF_MEMORY]

        log.wait_for(lambda: bool(killed_s()), RECOVERY_LIMIT_S, "a worker has run out of memory")
        first_s = killed_s()[0]
        trains_s = log.wait_for_progress(first_s, 1, RECOVERY_LIMIT_S)
        times = len(killed_s())
        notes = [record.event.reason for record in log.records() if isinstance(record.event, PodPending)]
    assert any(reason.endswith("because it ran out of memory") for reason in notes), notes
    assert report["state"] == "succeeded", report
    assert report["audit"]["exact"], report
    note(fault="worker-0 out of memory", times=times, trains_after_s=round(trains_s - first_s, 1))


@pytest.mark.bench_cluster
@pytest.mark.timeout(JOB_LIMIT_S)
@pytest.mark.usefixtures("service_images")
def test_the_part_of_a_ps_that_has_no_place_is_restored_on_the_others(
    cluster: Cluster, experiment: Experiment, faults: Faults, command_line: CommandLine
) -> None:
    lost, job = experiment.pod("ps-1"), experiment.job
    present = len(cluster.core.list_namespaced_pod(command_line.namespace).items)
    quota = {"metadata": {"name": "places"}, "spec": {"hard": {"count/pods": str(present - 1)}}}

    def says_why() -> bool:
        pods = json.loads(command_line.run("status", job, "--json"))["pods"]
        return "exceeded quota: places" in pods.get("ps-1", {}).get("pending", "")

    cluster.core.create_namespaced_resource_quota(command_line.namespace, quota)
    try:
        faults.delete(lost)
        wait_until(says_why, lambda: command_line.run("status", job))
        assert f"elasticdl scale {job} --ps=1" in command_line.fails("scale", job, "--ps=2")
        scaled_s = time.time()
        told = command_line.run("scale", job, "--ps=1")
        assert "ps-1 is pending: its part of the model is restored from its last snapshot" in told
        trains_s = experiment.log.wait_for_progress(scaled_s, WORKERS, RECOVERY_LIMIT_S)
        experiment.note(fault="ps-1 without a place: scaled to one ps", trains_after_s=round(trains_s - scaled_s, 1))
    finally:
        cluster.core.delete_namespaced_resource_quota("places", command_line.namespace)
    experiment.ends_exactly()
