"""Jobs whose pods can't reach a server: the client says so, Ctrl-C leaves the job, and it can be stopped."""

from __future__ import annotations

import re
import signal

import pytest
from tests.cluster.readiness import wait_until
from tests.cluster.scenarios.command_line import CommandLine

pytestmark = [pytest.mark.usefixtures("service_images"), pytest.mark.timeout(300), pytest.mark.bench_cluster]
TRAIN = ["train", "--platform=kubernetes", "--model_def=deepfm.custom_model", "--training_data=s3://elasticdl/none"]


def test_a_nats_server_that_pods_can_not_reach(user: CommandLine) -> None:
    doctor = f"To check the namespace: elasticdl doctor --namespace={user.namespace}"
    lines = []
    with user.start(*TRAIN, "--nats_url=nats://nats.none:4222") as following:
        for line in following.stdout or ():
            lines.append(line)
            if line.strip() == doctor:
                following.send_signal(signal.SIGINT)
    output = "".join(lines)
    assert following.returncode == 130, output
    assert "Waiting: Kubernetes starts the master's pod again, which has ended: no NATS server answers at" in output
    assert "Error:" not in output, output  # The log of the pod says the same.
    (job,) = re.findall(r"The job continues\. To follow it: elasticdl attach (\S+)", output)
    shown = user.run("status", job)
    assert "Its event log can't be read." in shown and "no NATS server answers" in shown
    assert f"{job}: deleted, because it has no event log that can be reached." in user.run("stop", job)
    wait_until(lambda: job not in user.run("jobs"), lambda: f"{job} is not deleted")


def test_a_storage_that_pods_can_not_reach(user: CommandLine) -> None:
    message = user.fails(*TRAIN, "--envs=AWS_ENDPOINT_URL=http://minio.none:9000")
    assert "Error: --storage=s3://elasticdl can't be written: object storage at http://minio.none:9000" in message
    (job,) = re.findall(r"Created job (\S+) in namespace", message)
    wait_until(lambda: job not in user.run("jobs"), lambda: f"{job} is not deleted")
