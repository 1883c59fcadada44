"""Each step of a ring is that of ``fit``, however many members share the batch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import write_data, write_model

STEPS, RECORDS = 60, 48
"""An epoch is one update, so the losses of the epochs are those of the steps."""

MODEL = """
import keras
import tensorflow as tf


def custom_model():
    inputs = keras.Input((3,))
    ids = keras.ops.cast(inputs * 10.0 + 10.0, "int64")
    rows = keras.layers.Embedding(21, 4, embeddings_initializer="zeros")(ids)
    first, second = (keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2))
    x = keras.layers.Concatenate()([inputs, keras.layers.Flatten()(rows)])
    x = keras.layers.Dense(8, activation="tanh", kernel_initializer=first, kernel_regularizer="l2")(x)
    return keras.Model(inputs, keras.layers.Dense(1, kernel_initializer=second)(x))


def loss(labels, predictions):
    return tf.reduce_mean(tf.square(labels - predictions))


def optimizer():
    return keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.02, 20, 0.9))


def feed_batch(records, mode, metadata):
    features = tf.stack([tf.cast(records[name], tf.float32) for name in ("a", "b", "c")], axis=1)
    return features, tf.cast(records["y"], tf.float32)[:, None]
"""
"""Most ids are several times in a batch."""

FIT = """
import csv, json, sys
import keras, numpy as np
import model as user

with open(sys.argv[1]) as file:
    table = np.array([[float(value) for value in row] for row in list(csv.reader(file))[1:]], np.float32)
losses = json.loads(sys.argv[2])
own = user.custom_model()
own.compile(optimizer=user.optimizer(), loss=user.loss)
history = own.fit(table[:, :3], table[:, 3:], batch_size=len(table), epochs=len(losses), verbose=0).history
np.testing.assert_allclose(losses, history["loss"], rtol=1e-5, atol=1e-5)
assert history["loss"][-1] < 0.1 * history["loss"][0], history
trained = keras.saving.load_model("output/model.keras")
for mine, theirs in zip(own.get_weights(), trained.get_weights(), strict=True):
    np.testing.assert_allclose(theirs, mine, rtol=1e-5, atol=1e-5)
"""


@pytest.mark.parametrize("workers", [2, pytest.param(6, marks=pytest.mark.thorough)])
def test_each_step_is_that_of_fit(elastic: Elastic, workers: int) -> None:
    write_model(elastic.folder, MODEL)
    data = write_data(elastic.folder, RECORDS)
    outcome = elastic.train(
        "--model_def=model.py",
        f"--training_data={data}",
        "--distribution_strategy=AllreduceStrategy",
        f"--num_workers={workers}",
        f"--global_batch_size={RECORDS}",
        "--num_minibatches_per_task=1",
        f"--num_epochs={STEPS}",
        "--output=output",
    )
    losses = [row["loss"] for row in outcome.report["history"]["epochs"]]
    assert len(losses) == STEPS
    command = [sys.executable, "-c", FIT, str(data), json.dumps(losses)]
    compared = subprocess.run(command, cwd=elastic.folder, capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stderr[-3000:]
