"""A job with one worker trains the model that ``fit`` trains on the same batches."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.elastic import Elastic, write_lines
from tests.e2e.models import write_model

RECORDS, BATCH, EPOCHS = 800, 16, 4
FEATURES = 6

MODEL = """
import keras
import tensorflow as tf

BATCHES = {batches!r}


def custom_model():
    first, second, third = (keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2, 3))
    inputs = keras.Input((6,))
    x = keras.layers.Dense(16, use_bias=False, kernel_initializer=first)(inputs)
    x = keras.layers.BatchNormalization(momentum=0.9)(x)
    {table}
    x = keras.layers.Dense(8, activation="tanh", kernel_initializer=second)(x)
    return keras.Model(inputs, keras.layers.Dense(1, kernel_initializer=third)(x))


def loss(labels, predictions):
    return tf.reduce_mean(tf.square(labels - predictions))


def optimizer():
    return {optimizer}


def without_decay(optimizer, *names):
    optimizer.exclude_from_weight_decay(var_names=names)
    return optimizer


def feed_batch(records, mode, metadata):
    if mode == "train":
        tf.py_function(_note, [records["number"]], [])
    features = tf.stack([tf.cast(records[f"x{{place}}"], tf.float32) for place in range(6)], axis=1)
    return features, tf.cast(records["y"], tf.float32)[:, None]


def _note(numbers):
    with open(BATCHES, "a") as file:
        print(*numbers.numpy(), file=file)
"""
"""Writes the records of each batch to a file. A bias before BatchNormalization would have no gradient but rounding."""

TABLE = """ids = keras.ops.mod(keras.ops.cast(keras.ops.absolute(inputs[:, 5]) * 20, "int32"), 33000)
    x = keras.layers.Add()([x, keras.layers.Embedding(33000, 16, "zeros", name="served")(ids)])"""
"""Few of its rows are in a batch, and some are in two batches only."""

FIT = """
import csv, hashlib, sys
import keras, numpy as np
import model as user

lines = open(user.BATCHES).read().splitlines()[-int(sys.argv[2]):]
order = [int(number) for line in lines for number in line.split()]
with open(sys.argv[1]) as file:
    table = np.array([[float(value) for value in row] for row in list(csv.reader(file))[1:]], np.float32)[order]
own = user.custom_model()
own.compile(optimizer=user.optimizer(), loss=user.loss)
own.fit(table[:, 1:-1], table[:, -1:], batch_size=int(sys.argv[3]), shuffle=False, verbose=0)
trained = keras.saving.load_model("output/model.keras")
for mine, theirs in zip(own.get_weights(), trained.get_weights(), strict=True):
    np.testing.assert_allclose(theirs, mine, rtol=float(sys.argv[4]), atol=float(sys.argv[4]))
moved = [float(np.abs(a - b).max()) for a, b in zip(own.get_weights(), user.custom_model().get_weights())]
assert min(moved) > 1e-2, moved
print(hashlib.sha256(b"".join(weight.tobytes() for weight in trained.get_weights())).hexdigest())
"""


def train(elastic: Elastic, data: Path) -> list[str]:
    """Train with one worker; the records of each batch, in their order."""
    written = elastic.folder / "batches.txt"
    written.unlink(missing_ok=True)
    elastic.train(
        "--model_def=model.py",
        f"--training_data={data}",
        f"--minibatch_size={BATCH}",
        f"--num_epochs={EPOCHS}",
        "--num_workers=1",
        "--shuffle=records",
        "--seed=7",
        "--output=output",
    )
    batches = RECORDS // BATCH * EPOCHS
    return written.read_text().splitlines()[-batches:]  # The check before the job feeds its batch too.


@pytest.mark.parametrize(
    ("optimizer", "table", "is_repeated"),
    [
        ("keras.optimizers.SGD(0.02)", "", False),
        ("keras.optimizers.SGD(0.005, momentum=0.9)", TABLE, False),
        ("keras.optimizers.Nadam(0.01)", "", False),
        ("without_decay(keras.optimizers.AdamW(0.01, weight_decay=0.05), 'batch_norm', 'served')", TABLE, True),
        # With NonNeg weights in the last layer.
        ("keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=70)", "", False),
    ],
)
def test_one_worker_trains_the_model_of_fit(elastic: Elastic, optimizer: str, table: str, is_repeated: bool) -> None:
    model = MODEL.format(optimizer=optimizer, table=table, batches=str(elastic.folder / "batches.txt"))
    if "use_ema" in optimizer:
        model = model.replace("kernel_initializer=third", "kernel_initializer=third, kernel_constraint='non_neg'")
    write_model(elastic.folder, model)
    data = write_data(elastic.folder)
    batches = train(elastic, data)
    assert sorted(" ".join(batches).split(), key=int) == [
        str(number) for number in range(RECORDS) for _ in range(EPOCHS)
    ]
    assert batches != sorted(batches)
    # Rows that catch up are computed from a sum in blocks.
    tolerance = 2e-4 if table else 1e-5
    first = compare(elastic, data, len(batches), tolerance)
    if "use_ema" in optimizer:  # The averages are in the snapshots, too.
        written = (elastic.folder / "batches.txt").read_text()
        assert elastic.run("export", "model", "--output=output").exit_code == 0
        (elastic.folder / "batches.txt").write_text(written)  # An export feeds a batch, too.
        assert compare(elastic, data, len(batches), tolerance) == first
    if is_repeated:
        assert train(elastic, data) == batches
        assert compare(elastic, data, len(batches), tolerance) == first


def compare(elastic: Elastic, data: Path, batches: int, tolerance: float) -> str:
    """Train with ``fit`` and compare; returns the digest of the job's weights."""
    command = [sys.executable, "-c", FIT, str(data), str(batches), str(BATCH), str(tolerance)]
    compared = subprocess.run(command, cwd=elastic.folder, capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stderr[-3000:]
    return compared.stdout.splitlines()[-1]


def write_data(folder: Path) -> Path:
    """Six numbers and a smooth function of them, as CSV with the record's number."""
    numbers = random.Random(5)
    lines = [",".join(["number", *(f"x{place}" for place in range(FEATURES)), "y"])]
    for record in range(RECORDS):
        x = [round(numbers.gauss(place, 1 + place), 4) for place in range(FEATURES)]
        y = x[0] * 0.5 - (x[1] - 1) * (x[2] - 2) / 6 + abs(x[5] - 5) / 6
        lines.append(",".join(str(value) for value in [record, *x, round(y, 4)]))
    return write_lines(folder / "data" / "train.csv", lines)
