"""Large arrays of ``fit()``: the model is checked while they are written; a job that ends meanwhile leaves nothing."""

from __future__ import annotations

import json
import re

import pytest
from tests.e2e.elastic import Elastic, left_behind

LARGE = """
import os
import signal
import threading
import time
from pathlib import Path

import keras
import numpy as np

x = np.random.default_rng(0).random((1 << 18, 128), dtype=np.float32)  # 128 MiB
y = x[:, :1] * 2
model = keras.Sequential([keras.Input((INPUTS,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.02), "mse")
"""
INTERRUPTED = """

def interrupt():
    while not list(Path("jobs").glob("*/data/training.npz")):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=interrupt).start()
"""
NO_ROOM = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (50 << 20, resource.RLIM_INFINITY))
"""


def test_large_arrays_train_whole_although_the_model_was_checked_with_a_batch(elastic: Elastic) -> None:
    fit = "history = model.fit(x, y, batch_size=2048, epochs=2, validation_data=(x[:5000], y[:5000]))\n"
    (elastic.folder / "script.py").write_text(
        LARGE.replace("INPUTS", "128") + fit + "print('loss', history.history['val_loss'][-1])\n"
    )
    outcome = elastic.run("run", "script.py")
    assert outcome.exit_code == 0, outcome.output
    (job,) = elastic.jobs.iterdir()
    report = json.loads((job / "report.json").read_text())
    assert report["audit"]["exact"] is True
    assert report["audit"]["records"] == 2 << 18
    assert float(re.search(r"^loss (.*)$", outcome.output, re.MULTILINE)[1]) < 0.1  # type: ignore[index]
    assert [file.name for file in sorted((job / "data").iterdir())] == ["training.npz", "validation.npz"]
    assert not (job / "first").exists()


@pytest.mark.parametrize(
    ("inputs", "before", "code", "says"),
    [
        ("128", INTERRUPTED, 130, r"Interrupted before training began; nothing is left of the job\."),
        ("128", NO_ROOM, 1, r"Error: the data of fit\(\) can't be written to \S+training\.npz: File too large"),
        ("99", "", 1, r"Error: the model of script\.py raised .*expected axis -1 of input shape to have value 99"),
    ],
    ids=["interrupted", "no room", "wrong model"],
)
def test_nothing_is_left_of_a_job_that_ends_while_its_arrays_are_written(
    elastic: Elastic, inputs: str, before: str, code: int, says: str
) -> None:
    (elastic.folder / "script.py").write_text(LARGE.replace("INPUTS", inputs) + before + "model.fit(x, y)\n")
    outcome = elastic.run("run", "script.py")
    assert outcome.exit_code == code, outcome.output
    assert re.search(says, outcome.output.replace("\n", " ")), outcome.output
    assert len(re.findall("^(?:Error:|Interrupted)", outcome.output, re.MULTILINE)) == 1, outcome.output
    assert "Traceback" not in outcome.output
    assert not list(elastic.jobs.glob("*"))
    assert left_behind(elastic.folder) == []
