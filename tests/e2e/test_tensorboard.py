"""The event files of ``--tensorboard_log_dir``, read back with TensorBoard's own reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
from tests.e2e.elastic import Elastic, check_exact
from tests.e2e.models import LINEAR, slowly, write_data, write_model

FLAGS = (
    "--model_def=model.py",
    "--training_data=data",
    "--validation_data=validation",
    "--num_epochs=3",
    "--num_workers=1",
    "--tensorboard_log_dir=curves",
)


def curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    """The points of a curve."""
    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    accumulator.Reload()
    return [(one.step, float(make_ndarray(one.tensor_proto))) for one in accumulator.Tensors(tag)]


def points(rows: list[dict[str, Any]], values: list[float]) -> list[Any]:
    """The points that belong to rows of the report; TensorBoard stores values as float32."""
    return [(row["epoch"] - 1, pytest.approx(value)) for row, value in zip(rows, values, strict=True)]


@pytest.fixture
def user(elastic: Elastic) -> Elastic:
    write_data(elastic.folder, records=256)
    write_data(elastic.folder, records=200, name="validation/test.csv", seed=4)
    return elastic


def test_a_job_whose_master_is_killed_has_each_point_once(user: Elastic) -> None:
    write_model(user.folder, slowly(LINEAR, batch_s=1.0))
    with user.start("train", *FLAGS, "--report=report.json") as running:
        running.wait_for("epoch 1/3")
        user.kill("master")
        running.wait_for("The new master has recovered")
        user.remove_delay()
        assert running.wait() == 0, running.output
    outcome = user.run("report", user.job, "--json")
    assert outcome.exit_code == 0, outcome.output
    rows = json.loads(outcome.output)["history"]["epochs"]
    curves = user.folder / "curves" / user.job
    losses = curve(curves / "train", "epoch_loss")
    assert losses == points(rows, [row["loss"] for row in rows])
    validated = curve(curves / "validation", "epoch_mse")
    assert validated == points(rows, [row["validation"]["mse"] for row in rows])
    *_, (step, goodput) = curve(curves / "train", "goodput")
    assert step == 12
    assert goodput == pytest.approx(json.loads(outcome.output)["goodput"], abs=1e-3)
    assert "tensorboard --logdir=" in running.output


@pytest.mark.thorough
def test_the_callback_is_the_flag(user: Elastic) -> None:
    callbacks = (
        "def callbacks():\n    return [keras.callbacks.TensorBoard('curves'), keras.callbacks.CSVLogger('log.csv')]\n"
    )
    write_model(user.folder, f"{LINEAR}\n\n{callbacks}")
    (user.folder / "file").touch()
    flags = FLAGS[:-1]
    outcome = user.train(*flags)
    assert "graph of the model is written with the first histograms" in outcome.output
    assert [step for step, _ in curve(user.folder / "curves" / outcome.job / "train", "epoch_loss")] == [0, 1, 2]
    write_model(user.folder, f"{LINEAR}\n\n{callbacks.replace('curves', 'file/curves')}")
    refused = user.run("train", *flags)
    assert refused.exit_code == 1
    assert "the folder of the TensorBoard callback, can't be written" in refused.output
    given = user.train(*flags, "--tensorboard_log_dir=given")
    validated = curve(user.folder / "given" / given.job / "validation", "epoch_mse")
    assert [step for step, _ in validated] == [0, 1, 2], given.output


def test_a_detached_job_writes_its_files_and_a_resume_continues_them(user: Elastic) -> None:
    write_model(user.folder)
    with user.start("train", *FLAGS, "--detach") as running:
        assert running.wait() == 0, running.output
    user.wait_until_gone()
    train = user.folder / "curves" / user.job / "train"
    before = curve(train, "epoch_loss")
    (file,) = train.iterdir()
    assert [step for step, _ in before] == [0, 1, 2]
    again = user.run("resume", user.job, "--num_epochs=5")
    assert again.exit_code == 0, again.output
    check_exact(again)
    after = curve(train, "epoch_loss")
    assert (after[:3], [step for step, _ in after]) == (before, [0, 1, 2, 3, 4])
    assert list(train.iterdir()) == [file]
