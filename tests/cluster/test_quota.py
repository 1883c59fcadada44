"""A job waits for what its namespace has too little of, and what is left of it once its objects are deleted."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import Deployment
from tests.cluster.readiness import wait_until
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.scenarios.training_log import reading
from tests.cluster.test_training import FLAGS, JOB_LIMIT_S

from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import JOB
from elasticdl.shared.messages.events import PodPending

QUOTA = "elasticdl-test"


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("service_images")
def test_a_job_trains_with_the_workers_that_a_quota_admits_and_its_log_outlives_its_objects(
    cluster: Cluster, elasticdl_namespace: Deployment, click_data: str, user: CommandLine
) -> None:
    pods = len(cluster.core.list_namespaced_pod(user.namespace).items)
    quota = {"metadata": {"name": QUOTA}, "spec": {"hard": {"count/pods": str(pods + 3)}}}
    cluster.core.create_namespaced_resource_quota(user.namespace, quota)
    try:
        created = user.run(
            *("train", "--platform=kubernetes", "--detach", "--job_name=small", *FLAGS, "--num_epochs=6"),
            f"--training_data={click_data}/train",
        )
        (job,) = set(re.findall(r"small-[0-9a-f]{6}", created))
        with reading(elasticdl_namespace.environment["ELASTICDL_NATS_URL"], job) as log:
            log.wait_for_progress(0.0, 1, JOB_LIMIT_S)
            reasons = [record.event.reason for record in log.records() if isinstance(record.event, PodPending)]
            assert any(f"exceeded quota: {QUOTA}" in reason for reason in reasons), reasons
            waiting = [pod for pod in json.loads(user.run("status", job, "--json"))["pods"].values() if pod["pending"]]
            assert len(waiting) == 1 and "exceeded quota" in waiting[0]["pending"], waiting
    finally:
        cluster.core.delete_namespaced_resource_quota(QUOTA, user.namespace)
    report = user.wait_for_end(job, JOB_LIMIT_S)
    assert report["state"] == "succeeded" and report["audit"]["exact"], report

    with contextlib.closing(KubernetesApi.connect(kubeconfig=str(cluster.kubeconfig), namespace=user.namespace)) as api:
        api.delete(JOB, job)
    wait_until(lambda: job not in user.run("jobs"), lambda: f"{job} is not deleted")
    assert user.report("small")["audit"] == report["audit"]
    assert "succeeded" in user.run("status", job)
    assert "JobSubmitted" in user.run("events", job)
    for command in (("resume", job), ("export", job, "--output=s3://elasticdl/copy")):
        message = user.fails(*command)
        assert f"the Kubernetes Job of {job} was deleted" in message and "--initial_model" in message
    assert "there is no job 'smalls'" in user.fails("report", "smalls")
