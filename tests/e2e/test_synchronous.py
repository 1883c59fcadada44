"""Synchronous training: the model of one process, whatever happens to the workers."""

from __future__ import annotations

import json

import pytest
from tests.e2e.elastic import Elastic, check_exact
from tests.e2e.models import LINEAR, slowly, write_data, write_model
from tests.e2e.one_process import Rounds

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

ROUNDS = Rounds(records=RECORDS, batch=BATCH, per_task=PER_TASK, cohort=WORKERS, epochs=EPOCHS)


@pytest.mark.parametrize("disturbance", ["none", "kill", pytest.param("slow", marks=pytest.mark.thorough)])
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
    ROUNDS.check_model(elastic.folder, data)


def test_fewer_workers_than_batches_of_an_update_train_them_in_turns(elastic: Elastic) -> None:
    write_model(elastic.folder)
    data = write_data(elastic.folder, RECORDS)
    outcome = elastic.train(
        "--model_def=model.py", f"--training_data={data}", "--num_workers=1", "--use_async=false", "--grads_to_wait=3"
    )
    check_exact(outcome)
