"""A column of sample weights trains the model that ``fit(sample_weight=...)`` trains, without a feed."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
from tests.e2e.elastic import Elastic, write_lines
from tests.e2e.models import write_model

RECORDS = 160

MODEL = """
import keras

sample_weight = {"level": "importance", "sign": "trust"}


def custom_model():
    first, second = (keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2))
    inputs = [keras.Input((1,), name=name) for name in ("a", "b")]
    joined = keras.layers.Concatenate()(inputs)
    level = keras.layers.Dense(1, name="level", kernel_initializer=first)(joined)
    sign = keras.layers.Dense(1, activation="sigmoid", name="sign", kernel_initializer=second)(joined)
    spare = keras.layers.Dense(1, name="spare", trainable=False)(joined)
    model = keras.Model(inputs, [level, sign, spare])
    model.compile(
        keras.optimizers.Adam(0.05),
        loss=["mse", "binary_crossentropy", None],
        loss_weights=[0.5, 1.0, None],
        weighted_metrics=[["mae"], ["accuracy"], None],
    )
    return model
"""
FIT = """
import json, sys
import keras, numpy as np
import model as user

table = np.genfromtxt(sys.argv[1], delimiter=",", names=True, dtype=np.float32)
features = [table["a"][:, None], table["b"][:, None]]
labels, weights = [table["level"][:, None], table["sign"][:, None], None], [table["importance"], table["trust"], None]
own = user.custom_model()
data = (features, labels, weights)
history = own.fit(*data[:2], sample_weight=weights, validation_data=data, batch_size=16, shuffle=False, verbose=0)
trained = keras.saving.load_model("output/model.keras")
for mine, theirs in zip(own.trainable_weights, trained.trainable_weights, strict=True):
    np.testing.assert_allclose(theirs, mine, rtol=1e-5, atol=1e-5)
print(json.dumps({name: values[-1] for name, values in history.history.items()}))
"""


def test_one_worker_trains_the_model_of_fit_with_sample_weights(elastic: Elastic) -> None:
    write_model(elastic.folder, MODEL)
    numbers = random.Random(5)
    lines = ["a,b,importance,trust,level,sign"]
    for _ in range(RECORDS):
        a, b = (round(numbers.gauss(0, 1), 4) for _ in range(2))
        lines.append(f"{a},{b},{numbers.choice([0, 1, 7])},{round(numbers.random(), 4)},{a - 2 * b:.4f},{int(a > b)}")
    data = write_lines(elastic.folder / "train.csv", lines)
    flags = (f"--training_data={data}", f"--validation_data={data}", "--shuffle=none", "--use_async=false")
    done = elastic.train("--model_def=model.py", *flags, "--minibatch_size=16", "--num_workers=1", "--output=output")
    assert "sample weights: importance, trust" in done.output
    assert "label: level, sign" in done.output

    compared = subprocess.run(
        [sys.executable, "-c", FIT, str(data)], cwd=elastic.folder, capture_output=True, text=True, check=False
    )
    assert compared.returncode == 0, compared.stderr[-3000:]
    expected = json.loads(compared.stdout.splitlines()[-1])
    (epoch,) = done.report["history"]["epochs"]
    found = {"loss": epoch["loss"], **epoch["metrics"], **{f"val_{k}": v for k, v in epoch["validation"].items()}}
    assert {"level_loss", "sign_loss", "val_level_loss", "val_sign_accuracy"} <= set(found)
    assert found == pytest.approx(expected, rel=1e-4)
