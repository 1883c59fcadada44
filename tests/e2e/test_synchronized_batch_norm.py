"""``BatchNormalization(synchronized=True)``: the model of one process that trains the concatenated batches."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, slowly, write_data, write_model

MODEL = (
    """
import keras
import tensorflow as tf


def custom_model():
    x = inputs = keras.Input((3,))
    for seed in (1, 2):
        x = keras.layers.Dense(6, kernel_initializer=keras.initializers.GlorotUniform(seed=seed))(x)
        x = keras.layers.BatchNormalization(synchronized=True, momentum=0.9)(x)
        x = keras.layers.Activation("tanh")(x)
    outputs = keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=3))(x)
    return keras.Model(inputs, outputs)

"""
    "\n\ndef loss" + LINEAR.partition("def loss")[2]
)

BATCH, PER_TASK, COHORT, RECORDS, EPOCHS = 8, 4, 2, 390, 4

FIT = """
import json, sys
import keras, numpy as np, tensorflow as tf
sys.path.insert(0, sys.argv[1])
import model as user
records, rounds = np.array(json.loads(sys.argv[2]), np.float32), json.loads(sys.argv[3])
own, optimizer = user.custom_model(), user.optimizer()
for one in rounds:
    with tf.GradientTape() as tape:
        loss = user.loss(records[one, 3], own(records[one, :3], training=True))
    optimizer.apply(tape.gradient(loss, own.trainable_variables), own.trainable_variables)
trained = keras.saving.load_model(sys.argv[1] + "/output/model.keras")
assert all(layer.synchronized for layer in trained.layers if isinstance(layer, keras.layers.BatchNormalization))
for mine, theirs in zip(own.get_weights(), trained.get_weights(), strict=True):
    np.testing.assert_allclose(theirs, mine, atol=1e-4)
features = records[:, :3]
np.testing.assert_allclose(trained.predict(features, verbose=0), own.predict(features, verbose=0), atol=1e-4)
"""


def rounds() -> list[list[int]]:
    """The records of each update, without shuffling."""
    starts = list(range(0, RECORDS, BATCH * PER_TASK))
    found = []
    for first in range(0, len(starts), COHORT):
        tasks = [range(start, min(start + BATCH * PER_TASK, RECORDS)) for start in starts[first : first + COHORT]]
        for batch in range(PER_TASK):
            one = [record for task in tasks for record in task[batch * BATCH : (batch + 1) * BATCH]]
            found += [one] if one else []
    return found * EPOCHS


@pytest.mark.parametrize(("workers", "ps", "killed"), [(2, 2, ""), (2, 2, "worker-1"), (2, 1, "ps-0"), (1, 1, "")])
def test_the_statistics_are_those_of_the_whole_round(elastic: Elastic, workers: int, ps: int, killed: str) -> None:
    write_model(elastic.folder, slowly(MODEL, batch_s=0.2))
    data = write_data(elastic.folder, RECORDS)
    flags = [
        "--model_def=model.py",
        f"--training_data={data}",
        f"--num_workers={workers}",
        "--use_async=false",
        f"--grads_to_wait={COHORT}",
        f"--minibatch_size={BATCH}",
        f"--num_minibatches_per_task={PER_TASK}",
        f"--num_epochs={EPOCHS}",
        "--shuffle=none",
        f"--num_ps_pods={ps}",
        "--output=output",
    ]
    report = elastic.folder / "report.json"
    with elastic.start("train", *flags, "--report", str(report)) as running:
        if killed:
            running.wait_for_progress()
            elastic.kill(killed)
            running.wait_for(f"{killed} died")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    assert facts["audit"]["exact"] is True
    compare = [sys.executable, "-c", FIT, str(elastic.folder), json.dumps(_records(data)), json.dumps(rounds())]
    compared = subprocess.run(compare, capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stderr[-3000:]


def _records(data: Path) -> list[list[float]]:
    with data.open() as lines:
        return [[float(row[name]) for name in ("a", "b", "c", "y")] for row in csv.DictReader(lines)]
