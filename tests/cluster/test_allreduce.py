"""A ring of workers in pods: one is killed and one evicted, and the model is that of one process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import BUCKET, Deployment
from tests.cluster.readiness import wait_until
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.sites import NODE_NAME
from tests.e2e.models import slowly, write_data, write_model
from tests.e2e.one_process import Rounds
from tests.e2e.test_synchronous import MODEL

from elasticdl.shared.storage import open_store

BATCH, PER_TASK, COHORT, RECORDS, EPOCHS = 8, 4, 3, 240, 5
ROUNDS = Rounds(records=RECORDS, batch=BATCH, per_task=PER_TASK, cohort=COHORT, epochs=EPOCHS)
FOLDER = f"s3://{BUCKET}/ring"
END_LIMIT_S = 400
FLAGS = [
    "--model_def=model.py",
    "--distribution_strategy=AllreduceStrategy",
    f"--grads_to_wait={COHORT}",
    f"--minibatch_size={BATCH}",
    f"--num_minibatches_per_task={PER_TASK}",
    f"--num_epochs={EPOCHS}",
    "--shuffle=none",
    "--num_workers=3",
    f"--training_data={FOLDER}/data.csv",
    f"--output={FOLDER}/output",
    "--worker_resource_request=cpu=80m,memory=600Mi",
    "--worker_resource_limit=cpu=2,memory=1500Mi",
    "--master_resource_request=cpu=10m,memory=200Mi",
    "--master_resource_limit=cpu=2,memory=1500Mi",
]
RING = re.compile(r"FormRing generation=(\d+) members=\(([^)]*)\) reason=(.*)")


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("service_images")
def test_the_model_is_that_of_one_process_although_workers_are_killed_and_evicted(
    cluster: Cluster, user: CommandLine, elasticdl_namespace: Deployment, tmp_path: Path
) -> None:
    write_model(tmp_path, slowly(MODEL, batch_s=0.4))
    data = write_data(tmp_path, RECORDS)
    store = open_store(FOLDER, elasticdl_namespace.storage())
    store.write(f"{FOLDER}/data.csv", data)
    user.train("ring", *FLAGS)
    namespace = user.namespace

    def rings() -> list[tuple[str, ...]]:
        """The generations: the members of each, and the reason."""
        found = RING.findall(user.run("events", "ring"))
        return [(*members.split(", "), reason) for _, members, reason in found]

    def wait_for_ring(*members: str) -> int:
        """How many generations there were when one of these members was the latest."""
        wait_until(lambda: rings()[-1:] != [] and set(rings()[-1][:-1]) == set(members), lambda: str(rings()), 200)
        return len(rings())

    def pod_of(worker: str) -> str:
        label = f"app.kubernetes.io/component=worker,elasticdl.org/pod={worker}"
        pods = cluster.core.list_namespaced_pod(namespace, label_selector=label).items
        (name,) = (pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is None)
        return str(name)

    wait_for_ring("worker-0", "worker-1", "worker-2")
    assert f"node={NODE_NAME}" in user.run("events", "ring")
    leader = rings()[-1][0]
    first, second = sorted({"worker-0", "worker-1", "worker-2"} - {leader})
    cluster.core.delete_namespaced_pod(pod_of(leader), namespace, grace_period_seconds=0)
    wait_until(lambda: rings()[-1][0] != leader, lambda: str(rings()), 200)
    eviction = {"metadata": {"name": pod_of(second), "namespace": namespace}}
    cluster.core.create_namespaced_pod_eviction(pod_of(second), namespace, eviction)
    wait_until(lambda: second not in rings()[-1], lambda: str(rings()), 200)
    report = user.wait_for_end("ring", END_LIMIT_S)
    assert report["state"] == "succeeded", report
    assert report["audit"]["exact"], report
    assert report["audit"]["repaired"] == 0, report
    (tmp_path / "output").mkdir()
    for one in store.list(f"{FOLDER}/output/"):
        if one.uri.endswith(".keras"):
            (tmp_path / "output" / one.uri.rpartition("/")[2]).write_bytes(store.read(one.uri))
    ROUNDS.check_model(tmp_path, data)
    masters = cluster.core.list_namespaced_pod(namespace, label_selector="app.kubernetes.io/component=ps").items
    assert not [pod for pod in masters if pod.metadata.labels["app.kubernetes.io/instance"] == report["job"]]
    assert first in {member for ring in rings() for member in ring}
