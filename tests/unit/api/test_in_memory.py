"""train(model, (x, y)): what the job gets, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from elasticdl.api import train
from elasticdl.api.in_memory import load_weights, written
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import ModelFile
from elasticdl.worker.model.user.module import load

pytestmark = pytest.mark.tensorflow

X = np.arange(40, dtype="float64").reshape(10, 4)
Y = np.arange(10)


def linear() -> Any:
    doubled = keras.layers.Lambda(lambda values: values * 2, output_shape=(4,))
    model = keras.Sequential([keras.Input((4,)), doubled, keras.layers.Dense(1)], name="net")
    model.compile("sgd", "mse")
    return model


def test_arguments_of_fit_become_files_and_flags(tmp_path: Path) -> None:
    values = {"run_dir": tmp_path, "epochs": 3, "minibatch_size": 5, "validation_split": 0.2, "num_workers": 1}
    job, flags = written(linear(), (X, Y), values)
    assert job.startswith("net-")
    assert (flags["num_epochs"], flags["minibatch_size"], flags["num_workers"]) == (3, 5, 1)
    assert {"epochs", "validation_split"}.isdisjoint(flags)
    with np.load(flags["training_data"]) as training, np.load(flags["validation_data"]) as validation:
        np.testing.assert_array_equal(training["x"], X[:8])
        np.testing.assert_array_equal(validation["y"], Y[8:])
    made = load(ModelFile(path=Path(flags["model_def"]))).make_model()
    np.testing.assert_array_equal(made(X[:1]).shape, (1, 1))
    model = linear()
    Path(flags["output"]).mkdir()
    made.save_weights(Path(flags["output"]) / "model.weights.h5")
    load_weights(model, job, flags)
    np.testing.assert_array_equal(model.get_weights()[0], made.get_weights()[0])


def test_windows_are_read_by_the_workers_and_not_copied(tmp_path: Path) -> None:
    windows = keras.utils.timeseries_dataset_from_array(X[:, 0], Y[3:], 4, batch_size=2)
    _, flags = written(linear(), windows, {"run_dir": tmp_path})
    with np.load(flags["training_data"]) as training:
        assert {name: column.tolist() for name, column in training.items()} == {"number": [0, 1, 2, 3, 4, 5, 6]}


def test_a_job_is_named_after_the_model_however_long_its_name_is(tmp_path: Path) -> None:
    model = linear()
    model.name = "Two_Towers_" + 30 * "ab"
    job, _ = written(model, (X, Y), {"run_dir": tmp_path})
    assert job.startswith("two-towers-abab")


@pytest.mark.parametrize(
    ("model", "data", "more", "says"),
    [
        (lambda: "model.py", (X, Y), {}, "needs a compiled Keras model"),
        (linear, (X, Y), {"validation_data": "data.csv"}, "and the training data is not"),
        (linear, (X, Y), {"platform": "kubernetes"}, "on Kubernetes"),
        (linear, (X, Y[:3]), {}, "x has 10, y has 3"),
        (linear, (X, Y), {"class_weight": {0: 1.0}, "sample_weight": Y}, "class_weight and sample_weight"),
    ],
)
def test_what_no_job_can_take_is_refused(tmp_path: Path, model: Any, data: Any, more: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        train(model(), data, run_dir=tmp_path, **more)
    assert not list(tmp_path.iterdir())


def test_of_an_unknown_flag_nothing_stays(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unknown_flag"):
        train(linear(), (X, Y), run_dir=tmp_path, unknown_flag=3)
    assert not list(tmp_path.iterdir())
