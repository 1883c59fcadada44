"""A job on Kubernetes that was stopped continues: its Job object is replaced, and its batches count once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import BUCKET, Deployment
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.scenarios.training_log import reading
from tests.cluster.test_training import FLAGS, JOB_LIMIT_S

from elasticdl.shared.storage import open_store


@pytest.mark.bench_cluster
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("service_images")
def test_a_stopped_job_continues_and_a_finished_one_trains_more_epochs(
    cluster: Cluster, elasticdl_namespace: Deployment, click_data: str, tmp_path: Path
) -> None:
    commands = CommandLine(kubeconfig=cluster.kubeconfig, namespace=elasticdl_namespace.namespace, folder=tmp_path)
    created = commands.run(
        *("train", "--platform=kubernetes", "--detach", "--job_name=again", *FLAGS, "--num_epochs=8"),
        *(f"--training_data={click_data}/train", f"--output=s3://{BUCKET}/exports/again"),
    )
    (job,) = set(re.findall(r"again-[0-9a-f]{6}", created))
    assert "elasticdl stop" in commands.fails("resume", job)

    with reading(elasticdl_namespace.environment["ELASTICDL_NATS_URL"], job) as log:
        log.wait_for_progress(0.0, 1, JOB_LIMIT_S)
    commands.run("stop", job)
    assert commands.wait_for_end(job, JOB_LIMIT_S)["state"] == "stopped"

    commands.run("resume", job)
    report = commands.report(job)
    assert report["state"] == "succeeded", report
    assert report["audit"]["exact"], report
    assert "nothing to resume" in commands.fails("resume", job)

    store = open_store(f"s3://{BUCKET}", elasticdl_namespace.storage())
    commands.run("export", job, f"--output=s3://{BUCKET}/exports/copy")
    assert any(store.list(f"s3://{BUCKET}/exports/copy"))
    assert "keeps no model of step 123,456" in commands.fails("export", job, "--step=123456")

    commands.run("resume", job, "--num_epochs=9")
    report = commands.report(job)
    assert report["state"] == "succeeded", report
    assert report["audit"]["exact"], report
