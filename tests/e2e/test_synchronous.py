"""Synchronous training: the model of one process, whatever happens to the workers."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.elastic import Elastic, check_exact
from tests.e2e.models import LINEAR, slowly, write_data, write_model

MODEL = (
    """
import keras
import tensorflow as tf


def custom_model():
    inputs = keras.Input((3,))
    first, second = (keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2))
    hidden = keras.layers.Dense(8, activation="tanh", kernel_initializer=first)(inputs)
    outputs = keras.layers.Dense(1, kernel_initializer=second)(hidden)
    return keras.Model(inputs, outputs)

"""
    "\n\ndef loss" + LINEAR.partition("def loss")[2].replace("SGD(0.05)", "Adam(0.01)")
)

BATCH, PER_TASK, WORKERS, RECORDS, EPOCHS = 8, 4, 3, 400, 8

FIT = """
import json, sys
import keras, numpy as np, tensorflow as tf
sys.path.insert(0, sys.argv[1])
import model as user
records, rounds = np.array(json.loads(sys.argv[2]), np.float32), json.loads(sys.argv[3])
own, optimizer = user.custom_model(), user.optimizer()
for one in rounds:
    with tf.GradientTape() as tape:
        loss = user.loss(records[one, 3], own(records[one, :3]))
    optimizer.apply(tape.gradient(loss, own.trainable_variables), own.trainable_variables)
trained = keras.saving.load_model(sys.argv[1] + "/output/model.keras")
for mine, theirs in zip(own.get_weights(), trained.get_weights(), strict=True):
    np.testing.assert_allclose(theirs, mine, atol=1e-4)
"""


def rounds() -> list[list[int]]:
    """The records of each update, without shuffling."""
    starts = list(range(0, RECORDS, BATCH * PER_TASK))
    found = []
    for first in range(0, len(starts), WORKERS):
        tasks = [range(start, min(start + BATCH * PER_TASK, RECORDS)) for start in starts[first : first + WORKERS]]
        for batch in range(PER_TASK):
            one = [record for task in tasks for record in task[batch * BATCH : (batch + 1) * BATCH]]
            found += [one] if one else []
    return found * EPOCHS


@pytest.mark.parametrize("disturbance", ["none", "kill", "slow"])
def test_a_synchronous_job_gives_the_model_of_one_process(elastic: Elastic, disturbance: str) -> None:
    write_model(elastic.folder, slowly(MODEL, batch_s=0.4))
    data = write_data(elastic.folder, RECORDS)
    flags = [
        "--model_def=model.py",
        f"--training_data={data}",
        f"--num_workers={WORKERS}",
        "--use_async=false",
        f"--global_batch_size={BATCH * WORKERS}",
        f"--num_minibatches_per_task={PER_TASK}",
        f"--num_epochs={EPOCHS}",
        "--shuffle=none",
        "--num_ps_pods=2",
        "--output=output",
    ]
    report = elastic.folder / "report.json"
    with elastic.start("train", *flags, "--report", str(report)) as running:
        if disturbance != "none":
            running.wait_for_progress()
        if disturbance == "kill":
            elastic.kill("worker-1")
            running.wait_for("worker-1 died")
        if disturbance == "slow":
            (elastic.folder / "slow_process").write_text(str(elastic.pid("worker-1")))
            running.wait_for("worker-1 is slow")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    assert facts["audit"]["exact"] is True
    compare = [sys.executable, "-c", FIT, str(elastic.folder), json.dumps(_records(data)), json.dumps(rounds())]
    compared = subprocess.run(compare, capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stderr[-3000:]


def test_fewer_workers_than_batches_of_an_update_train_them_in_turns(elastic: Elastic) -> None:
    write_model(elastic.folder)
    data = write_data(elastic.folder, RECORDS)
    outcome = elastic.train(
        "--model_def=model.py", f"--training_data={data}", "--num_workers=1", "--use_async=false", "--grads_to_wait=3"
    )
    check_exact(outcome)


def _records(data: Path) -> list[list[float]]:
    with data.open() as lines:
        return [[float(row[name]) for name in ("a", "b", "c", "y")] for row in csv.DictReader(lines)]
