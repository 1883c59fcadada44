"""Callbacks of the model file in a whole job: they stop it, set its learning rate, and survive their process."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.e2e.elastic import Elastic, check_exact
from tests.e2e.models import LINEAR, slowly, write_data, write_model

WITH_CALLBACKS = (
    LINEAR
    + """

class Own(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.calls = []

    def on_train_begin(self, logs=None):
        self.calls.append("begin")

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(epoch)

    def on_train_end(self, logs=None):
        print("calls:", self.calls)


def callbacks():
    return [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.05 if epoch < 2 else 0.0),
        keras.callbacks.EarlyStopping("val_mse", patience=2, restore_best_weights=True),
        keras.callbacks.CSVLogger("log.csv"),
        keras.callbacks.ModelCheckpoint("best/{epoch}.keras", monitor="val_mse", save_best_only=True),
        keras.callbacks.ModelCheckpoint("all/{epoch}-{val_mse:.6f}.weights.h5", save_weights_only=True),
        Own(),
    ]
"""
)


FLAGS = (
    "--model_def=model.py",
    "--training_data=data",
    "--validation_data=validation",
    "--num_epochs=9",
    "--num_workers=1",
    "--output=output",
)


@pytest.mark.parametrize("pods", [(), ("worker-0", "ps-0", "master")], ids=["undisturbed", "killed"])
def test_training_stops_where_keras_would_and_kills_change_nothing(elastic: Elastic, pods: tuple[str, ...]) -> None:
    write_model(elastic.folder, slowly(WITH_CALLBACKS, batch_s=1.0) if pods else WITH_CALLBACKS)
    write_data(elastic.folder, records=256)
    write_data(elastic.folder, records=200, name="validation/test.csv", seed=4)
    path = elastic.folder / "report.json"
    with elastic.start("train", *FLAGS, "--report", str(path)) as running:
        if pods:
            running.wait_for("epoch 1/9")
            for pod in pods:
                elastic.kill(pod)
            for back in ("worker-0 died", "ps-0 restored", "The new master has recovered"):
                running.wait_for(back)
            elastic.remove_delay()
        assert running.wait() == 0, running.output
    output, report = running.output, json.loads(path.read_text())
    # With a rate of 0 nothing improves after epoch 2: the epochs 3 and 4 use up the patience.
    assert report["plan"]["epochs"] == 4
    assert (report["audit"]["exact"], report["audit"]["repaired"]) == (True, 0)
    assert "EarlyStopping stops training: val_mse has not improved in 2 epochs" in output
    assert "Learning rate from epoch 3 on: 0" in output
    assert "calls: ['begin', 0, 1, 2, 3]" in output
    assert rows_of(elastic.folder / "log.csv") == ["0", "1", "2", "3"]
    values = [row["validation"]["mse"] for row in report["history"]["epochs"]]
    assert values[1] == values[2] == values[3] < values[0]
    assert report["best"]["exported"]
    check_checkpoints(elastic.folder, values)


def check_checkpoints(folder: Path, values: list[float]) -> None:
    """Plain Keras loads the files, and the model of each epoch is the one that was evaluated."""
    rows = np.loadtxt(folder / "validation/test.csv", delimiter=",", skiprows=1, dtype=np.float32)
    names = [f"{epoch}-{value:.6f}.weights.h5" for epoch, value in enumerate(values, 1)]
    assert sorted(path.name for path in (folder / "all").iterdir()) == sorted(names)
    assert sorted(path.name for path in (folder / "best").iterdir()) == ["1.keras", "2.keras"]
    for epoch in (1, 2):
        model: Any = keras.saving.load_model(folder / f"best/{epoch}.keras")
        assert mse(model, rows) == pytest.approx(values[epoch - 1], rel=1e-5)
    for name, value in zip(names, values, strict=True):
        model.load_weights(folder / "all" / name)
        assert mse(model, rows) == pytest.approx(value, rel=1e-5)


def mse(model: Any, rows: Any) -> float:
    """The mean squared error of a model on rows of three features and a label."""
    return float(np.mean((np.asarray(model(rows[:, :3]))[:, 0] - rows[:, 3]) ** 2))


def rows_of(file: Path) -> list[str]:
    """The epochs in a CSV log."""
    with file.open() as rows:
        return [row["epoch"] for row in csv.DictReader(rows)]


def test_a_resume_with_more_epochs_begins_training_again_for_the_callbacks(elastic: Elastic) -> None:
    write_model(elastic.folder, WITH_CALLBACKS)
    write_data(elastic.folder, records=256)
    write_data(elastic.folder, records=200, name="validation/test.csv", seed=4)
    job = elastic.train(*FLAGS).job
    again = elastic.run("resume", job, "--num_epochs=9")
    assert again.exit_code == 0, again.output
    check_exact(again)
    # EarlyStopping forgets what was best before: epoch 5 is its first one, and two more use up the patience.
    assert again.report["plan"]["epochs"] == 7
    assert "calls: ['begin', 0, 1, 2, 3, 'begin', 4, 5, 6]" in again.output
