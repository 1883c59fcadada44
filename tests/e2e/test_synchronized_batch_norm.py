"""``BatchNormalization(synchronized=True)``: the model of one process that trains the concatenated batches."""

from __future__ import annotations

import json

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, slowly, write_data, write_model
from tests.e2e.one_process import Rounds

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

ROUNDS = Rounds(records=RECORDS, batch=BATCH, per_task=PER_TASK, cohort=COHORT, epochs=EPOCHS)

CHECKS = """
assert all(layer.synchronized for layer in trained.layers if isinstance(layer, keras.layers.BatchNormalization))
features = records[:, :3]
np.testing.assert_allclose(trained.predict(features, verbose=0), own.predict(features, verbose=0), atol=1e-4)
"""


@pytest.mark.parametrize(
    ("workers", "ps", "killed"),
    [(2, 2, "worker-1"), (2, 1, "ps-0"), pytest.param(1, 1, "", marks=pytest.mark.thorough)],
)
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
    ROUNDS.check_model(elastic.folder, data, CHECKS)
