"""A spare pod takes the place of a worker of a ring that is killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import BUCKET, Deployment
from tests.cluster.readiness import wait_until
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.test_allreduce import END_LIMIT_S, FLAGS, RECORDS
from tests.e2e.models import slowly, write_data, write_model
from tests.e2e.test_synchronous import MODEL

from elasticdl.shared.storage import open_store

FOLDER = f"s3://{BUCKET}/ring"


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("service_images")
def test_a_spare_pod_takes_the_place_of_a_worker_that_is_killed(
    cluster: Cluster, user: CommandLine, elasticdl_namespace: Deployment, tmp_path: Path
) -> None:
    write_model(tmp_path, slowly(MODEL, batch_s=0.4))
    data = write_data(tmp_path, RECORDS)
    open_store(FOLDER, elasticdl_namespace.storage()).write(f"{FOLDER}/data.csv", data)
    user.train("spare", *FLAGS, "--num_workers=2", "--spare_workers=1")

    def events() -> str:
        return user.run("events", "spare")

    wait_until(lambda: "worker-2 ModelBuilt" in events(), events, 300)
    label = "app.kubernetes.io/component=worker,elasticdl.org/pod="
    pods = {
        number: cluster.core.list_namespaced_pod(user.namespace, label_selector=f"{label}worker-{number}").items[0]
        for number in (1, 2)
    }
    assert pods[2].spec.priority_class_name == "elasticdl-spare"
    assert pods[2].spec.priority < pods[1].spec.priority
    cluster.core.delete_namespaced_pod(pods[1].metadata.name, user.namespace, grace_period_seconds=0)
    wait_until(lambda: bool(re.search(r"members=\(worker-0, worker-2\)", events())), events, 100)
    promoted = events().partition("PromoteWorker worker=worker-2")[2].partition("replaces=worker-1")[2]
    assert "PodStarted" not in promoted.partition("members=(worker-0, worker-2)")[0]
    report = user.wait_for_end("spare", END_LIMIT_S)
    assert report["state"] == "succeeded", report
    assert report["audit"]["exact"], report
    assert report["audit"]["repaired"] == 0, report
