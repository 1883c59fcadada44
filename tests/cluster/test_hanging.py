"""Code of the model file that hangs in a pod: the worker is replaced, or the job ends and says where the code hangs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.test_training import FLAGS, finish

import elasticdl.cli

pytestmark = [pytest.mark.timeout(600), pytest.mark.bench_cluster]
MODEL_ZOO = Path(elasticdl.cli.__file__).parents[3] / "model_zoo"
HANG = """

import socket
import time

deepfm_feed_batch = feed_batch


def feed_batch(records, mode, metadata):
    tf.numpy_function(hang_in_pods, [], [])
    return deepfm_feed_batch(records, mode, metadata)


def hang_in_pods():
    service, _, pod = (["", "", ""] + socket.gethostname().rsplit("-", 3))[-3:]
    while service == "worker" and ({condition}):
        time.sleep(60)
"""
MODEL = ["--model_def=hanging.custom_model", "--model_params=ids_per_category=1000; hidden=(16,)", "--num_epochs=1"]
DEADLINE = "--batch_deadline_secs=20"


def write_hanging(user: CommandLine, condition: str) -> None:
    """Write a model file whose feed hangs under a condition on the worker's name and the number of its pod."""
    (user.folder / "hanging.py").write_text((MODEL_ZOO / "deepfm.py").read_text() + HANG.format(condition=condition))


def test_the_first_process_of_the_only_worker_hangs(
    cluster: Cluster, user: CommandLine, click_data: str, service_images: None
) -> None:
    write_hanging(user, "int(pod) <= 2")  # The master numbers pods; it first creates one ps and one worker.
    data = f"--training_data={click_data}/train"
    job = finish(cluster, user, "train", data, *MODEL, DEADLINE, "--num_workers=1").job
    events = user.run("events", job)
    assert "hung" in events, events


def test_every_worker_hangs(user: CommandLine, click_data: str, service_images: None) -> None:
    write_hanging(user, "True")
    data = f"--training_data={click_data}/train"
    flags = [*FLAGS, data, *MODEL, DEADLINE, "--num_workers=2"]
    message = user.fails("train", "--platform=kubernetes", *flags)
    for words in ("workers hung while running the same batch", "records ", "in hang_in_pods", "time.sleep(60)"):
        assert words in message, message
