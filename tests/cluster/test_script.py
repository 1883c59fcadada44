"""A Keras script whose ``fit()`` trains in pods: it is left with Ctrl-C, continued, and sees the trained model."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cluster.deployment import BUCKET, Deployment
from tests.cluster.scenarios.command_line import CommandLine

from elasticdl.shared.storage import open_store

STORAGE = f"s3://{BUCKET}/scripts"
SCRIPT = """
import json
import sys

import keras
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(4000, 40)).astype("float32")
y = x[:, :1] * 2 + x[:, 1:2]


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.wide = keras.layers.Dense(8000, lambda values: keras.ops.tanh(values))  # More than a ConfigMap takes.
        self.head = keras.layers.Dense(1)

    def call(self, inputs):
        return self.head(self.wide(inputs["features"]))


model = Net()
model.compile(keras.optimizers.Adam(0.001), "mse")
history = model.fit({"features": x}, y, epochs=3, batch_size=50, validation_split=0.1)
error = model.evaluate({"features": x[3600:]}, y[3600:], verbose=0)
open("results.json", "w").write(json.dumps({"history": history.history, "error": error, "arguments": sys.argv[1:]}))
"""
FLAGS = [
    "--platform=kubernetes",
    f"--storage={STORAGE}",
    "--num_workers=1",
    "--worker_resource_request=cpu=80m,memory=900Mi",
    "--worker_resource_limit=cpu=2,memory=1500Mi",
    "--ps_resource_request=cpu=40m,memory=300Mi",
    "--ps_resource_limit=cpu=2,memory=1Gi",
    "--master_resource_request=cpu=10m,memory=200Mi",
    "--master_resource_limit=cpu=2,memory=1500Mi",
]


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("service_images", "cluster")
def test_a_script_trains_in_pods_and_sees_the_trained_model(
    user: CommandLine, elasticdl_namespace: Deployment, tmp_path: Path
) -> None:
    user = replace(user, environment=elasticdl_namespace.environment)
    (tmp_path / "train.py").write_text(SCRIPT)
    said = ""
    with user.start("run", *FLAGS, "train.py", "--rate", "1") as running:
        assert running.stdout is not None
        for line in running.stdout:
            said += line
            if "Created job" in line:
                running.send_signal(signal.SIGINT)
    assert running.returncode == 130, said
    (command,) = (line for line in said.splitlines() if line.startswith("To continue this job"))
    assert command.endswith("train.py --rate 1"), said
    job = command.partition("--resume=")[2].split()[0]
    user.run("run", f"--resume={job}", *FLAGS, "train.py", "--rate", "1")
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["history"]["loss"]) == 3, results
    assert results["error"] == pytest.approx(results["history"]["val_loss"][-1], rel=1e-3)
    assert results["error"] < results["history"]["loss"][0], results
    report = user.report(job)
    assert report["audit"]["exact"], report
    store = open_store(STORAGE, elasticdl_namespace.storage())
    names = {one.uri.removeprefix(f"{STORAGE}/{job}/") for one in store.list(f"{STORAGE}/{job}/")}
    assert {"data/training.npz", "data/validation.npz", "model/shipped.pickle", "script.json"} <= names
    refused = user.fails("run", *FLAGS, "--image_name=localhost/absent:1", "--image_pull_deadline_secs=5", "train.py")
    assert "absent" in refused
    assert {one.uri.split("/")[4] for one in store.list(f"{STORAGE}/train-")} == {job}
