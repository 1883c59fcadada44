"""Jobs whose pods get too little memory, or whose images can't be pulled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.test_training import FLAGS, finish

import elasticdl.cli

pytestmark = pytest.mark.timeout(600)
MODEL_ZOO = Path(elasticdl.cli.__file__).parents[3] / "model_zoo"
NEEDS_MIB = 500
"""What the model needs beside Python and TensorFlow, which take about as much."""
HUNGRY = """

import os.path
import socket

if os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"):
    raise ValueError("code of users can read a token")
deepfm, ballast = custom_model, []


def custom_model(needs_mib, everywhere, **params):
    if not ballast and (everywhere or "-worker-" in socket.gethostname()):
        ballast.append(np.ones(needs_mib << 17))
    return deepfm(**params)
"""


@pytest.fixture
def hungry(user: CommandLine) -> CommandLine:
    """A user with a model file that needs memory, and that finds out whether it can read a token."""
    (user.folder / "hungry.py").write_text((MODEL_ZOO / "deepfm.py").read_text() + HUNGRY)
    return user


def flags(*changed: str, needs_mib: int = NEEDS_MIB, everywhere: bool = False) -> list[str]:
    return [
        "--model_def=hungry.custom_model",
        f"--model_params=needs_mib={needs_mib}; everywhere={everywhere}; ids_per_category=1000; hidden=(16,)",
        "--num_epochs=1",
        *changed,
    ]


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.bench_cluster)])
def test_workers_with_too_little_memory_get_more(
    cluster: Cluster, hungry: CommandLine, click_data: str, service_images: None, workers: int
) -> None:
    data = f"--training_data={click_data}/train"
    small = [
        "--worker_resource_limit=cpu=2,memory=750Mi",
        "--worker_resource_request=cpu=80m,memory=500Mi",
    ]
    job = finish(cluster, hungry, "train", data, *flags(f"--num_workers={workers}", *small)).job
    events = hungry.run("events", job)
    assert "out_of_memory" in events, events


def test_a_submission_that_runs_out_of_memory_is_one_sentence(
    hungry: CommandLine, click_data: str, service_images: None
) -> None:
    small = [
        f"--{pod}_resource_{what}=cpu=1,memory=700Mi" for pod in ("master", "worker") for what in ("limit", "request")
    ]
    data = f"--training_data={click_data}/train"
    message = hungry.fails(
        "train", "--platform=kubernetes", *FLAGS, data, *flags(*small, needs_mib=3000, everywhere=True)
    )
    assert "ran out of memory" in message and "--worker_resource_request=memory=QUANTITY" in message, message


def test_a_ps_whose_image_can_not_be_pulled_ends_the_job(
    user: CommandLine, click_data: str, service_images: None
) -> None:
    absent = ["--ps_image=localhost/none:1", "--image_pull_deadline_secs=3", "--detach"]
    data = f"--training_data={click_data}/train"
    created = user.run("train", "--platform=kubernetes", *FLAGS, data, *absent)
    (job,) = set(re.findall(r"Created job (\S+) in namespace", created))
    report = user.wait_for_end(job, 200)
    assert report["state"] == "failed"
    assert "ps-0 could not start within 3 s: can't pull the image localhost/none:1" in report["message"], report
