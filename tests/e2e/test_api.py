"""The Python API: jobs from a script, with the results of the commands."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, slowly, write_data, write_model

from elasticdl.api import ElasticDLError, Job, UserError, evaluate, predict, train

GUIDE = Path(__file__).parents[2] / "docs" / "python-api.md"


@pytest.fixture(autouse=True)
def _jobs_of_this_test(elastic: Elastic, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(elastic.folder)
    monkeypatch.setenv("ELASTICDL_RUN_DIR", str(elastic.folder / "jobs"))
    write_data(elastic.folder)
    yield
    elastic.wait_until_gone()  # The functions return when the job has ended, and its launcher ends after that.


def test_a_job_is_trained_and_its_model_evaluated(elastic: Elastic, capfd: pytest.CaptureFixture[str]) -> None:
    write_model(elastic.folder)
    job = train("model.py", "data", validation_data="data", num_epochs=2, num_workers=1, seed=5, output=Path("out"))
    shown = capfd.readouterr().out
    assert "Reading data" in shown
    assert f"{job.name}: succeeded" in shown
    assert job.report["audit"]["exact"] is True
    assert [len(values) for values in job.history.history.values()] == [2, 2, 2, 2]
    assert job.history.history["val_mse"][-1] == job.metrics["mse"]
    assert evaluate("model.py", "out", "data", shows=False).metrics == pytest.approx(job.metrics, rel=1e-5)
    predict("model.py", "out", "data", "predictions", shows=False)
    assert Path("predictions/_SUCCESS").exists()
    assert capfd.readouterr().out == ""


def test_the_example_of_the_guide_runs(elastic: Elastic) -> None:
    pytest.importorskip("pandas")
    code, with_object, with_arrays, statements = re.findall(
        r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert elastic.run("zoo", "data", "mnist", "mnist").exit_code == 0
    names: dict[str, Any] = {}
    exec(code, names)
    assert len(names["job"].history.history["val_accuracy"]) == 3
    assert Path("predictions/_SUCCESS").exists()

    data = write_data(elastic.folder, name="train.csv")
    data.write_text(data.read_text().replace("y", "price", 1))
    exec(with_object, names)
    assert names["trained"].get_weights()[0].shape == (3, 1)
    assert "batch_size=50" in with_arrays  # It trains as in the test below.
    exec(statements, names)


@pytest.mark.thorough
def test_a_model_is_trained_with_arrays_and_has_the_weights_afterwards(elastic: Elastic) -> None:
    x = np.random.default_rng(0).normal(size=(400, 3)).astype("float32")
    y = x.sum(axis=1)
    scaled = keras.layers.Lambda(lambda values: values * 0.5, output_shape=(3,))
    model = keras.Sequential([keras.Input((3,)), scaled, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    job = train(model, (x, y), validation_data=(x[:50], y[:50]), epochs=4, num_workers=1, shows=False)
    assert job.report["audit"]["exact"] is True
    assert len(job.history.history["val_loss"]) == 4
    assert model.evaluate(x[:50], y[:50], verbose=0) == pytest.approx(job.history.history["val_loss"][-1], rel=1e-3)


def test_a_job_is_scaled_and_stopped_while_it_runs(elastic: Elastic) -> None:
    write_model(elastic.folder, slowly(LINEAR, 0.2))
    job = train("model.py", "data", num_epochs=1000, num_workers=1, wait=False, shows=False)
    job.scale(workers=2)
    assert Job(job.name).state not in ("succeeded", "failed", "stopped")
    job.stop()
    with pytest.raises(ElasticDLError, match=f"the job {job.name} has been stopped"):
        job.wait(shows=False)
    assert job.logs("master")


def test_wrong_input_is_an_exception_with_the_message_of_the_command(elastic: Elastic) -> None:
    write_model(elastic.folder)
    with pytest.raises(UserError, match="--validation_data=nix does not exist"):
        train("model.py", "data", validation_data="nix", shows=False)
    write_model(elastic.folder, "raise ValueError('broken')\n")
    with pytest.raises(ElasticDLError, match=r"model\.py.*does not define|broken"):
        train("model.py", "data", shows=False)
    assert list((elastic.folder / "jobs").glob("*")) == []


OWN_LAYERS = """
import keras


@keras.saving.register_keras_serializable("own")
class Doubled(keras.layers.Layer):
    def call(self, x):
        return 2 * x


@keras.saving.register_keras_serializable("own")
def squares(labels, predictions):
    return keras.ops.mean((labels - predictions) ** 2, -1)
"""


def compiled_model(*layers: Any, loss: Any = "mse") -> Any:
    """A model of ``write_data``'s columns that already is right, but for its bias of 1."""
    model = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)], name="From_Notebook")
    model.layers[-1].set_weights(
        [keras.ops.convert_to_numpy([[1.0], [2.0], [-3.0]]), keras.ops.convert_to_numpy([1.0])]
    )
    model.compile(keras.optimizers.SGD(0.0), loss, metrics=["mae"])
    return model


@pytest.mark.thorough
def test_a_model_object_starts_with_its_weights(elastic: Elastic) -> None:
    job = train(compiled_model(), "data", label="y", validation_data="data", num_workers=1, output="out", shows=False)
    assert job.name.startswith("from-notebook-")
    assert job.metrics["mae"] == pytest.approx(1.0, abs=1e-4)
    record = json.loads((elastic.folder / "jobs" / job.name / "job.json").read_text())
    folder = elastic.folder / "jobs" / job.name / "model"
    assert record["model"] == f"{folder}/from_notebook.py:custom_model"
    assert sorted(each.name for each in folder.iterdir()) == ["from_notebook.py", "model.keras"]
    resumed = elastic.run("resume", job.name, "--num_epochs=2")
    assert resumed.exit_code == 0, resumed.output
    assert evaluate(compiled_model(), "out", "data", label="y", shows=False).metrics == pytest.approx(
        job.metrics, rel=1e-5
    )


def test_layers_and_losses_of_a_module_travel_with_a_model(elastic: Elastic, monkeypatch: pytest.MonkeyPatch) -> None:
    (elastic.folder / "own_layers.py").write_text(OWN_LAYERS)
    monkeypatch.syspath_prepend(elastic.folder)
    own_layers = importlib.import_module("own_layers")

    model = compiled_model(own_layers.Doubled(), loss=own_layers.squares)
    assert train(model, "data", label="y", num_workers=1, shows=False).state == "succeeded"
