"""A compiled Keras model alone is a model file: the columns of its inputs' names train, evaluate and predict."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as parquet
import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, write_data, write_model
from tests.e2e.test_more_epochs import weights_of

MODEL = """
import keras


def custom_model():
    inputs = [keras.Input((1,), name=name) for name in ("a", "b", "c")]
    model = keras.Model(inputs, keras.layers.Dense(1, name="prediction")(keras.layers.Concatenate()(inputs)))
    model.compile(keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
    return model
"""

TOP_LEVEL = """
import keras
from elasticdl.layers import adapt

label = "y"
features = ["c", "a", "b"]
model = keras.Sequential([keras.Input((3,)), adapt(keras.layers.Normalization(), features), keras.layers.Dense(1)])
model.compile("sgd", loss="mse", metrics=["mae"])
"""

SUBCLASSED = """
import keras

label = "y"


@keras.saving.register_keras_serializable()
class Net(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.prediction = keras.layers.Dense(1)

    def call(self, inputs):
        return {"y": self.prediction(inputs)}


model = Net()
model.compile(keras.optimizers.SGD(0.05), loss={"y": "mse"})
"""


def test_the_model_is_that_of_a_feed_and_needs_no_label_to_predict(elastic: Elastic) -> None:
    write_data(elastic.folder, records=2000)
    write_model(elastic.folder, MODEL)
    flags = ("--training_data=data", "--num_workers=1", "--seed=5", "--num_epochs=2")
    plain = elastic.train("--model_def=model.py", *flags, "--output=plain")
    assert plain.report["audit"]["exact"]
    assert "inputs of the model: a, b, c; label: y" in plain.output
    # The same layers, initial weights and batches, with the columns put together by the model file.
    write_model(elastic.folder, LINEAR, "fed.py")
    elastic.train("--model_def=fed.py", *flags, "--output=fed")
    assert weights_of(elastic.folder / "plain/model.keras") == weights_of(elastic.folder / "fed/model.keras")

    lines = [line.rpartition(",")[0] for line in (elastic.folder / "data/train.csv").read_text().splitlines()]
    (elastic.folder / "new.csv").write_text("\n".join(lines) + "\n")
    predicted = elastic.run(
        *("predict", "--model=plain", "--model_def=model.py", "--prediction_data=new.csv"),
        *("--output=predictions", "--keep_columns=a,b,c"),
    )
    assert predicted.exit_code == 0, predicted.output
    table = parquet.read_table(elastic.folder / "predictions").to_pydict()
    expected = np.array(table["a"]) + 2 * np.array(table["b"]) - 3 * np.array(table["c"])
    assert len(expected) == 2000 and np.abs(np.array(table["prediction"]).ravel() - expected).max() < 1.0


def test_a_model_at_the_top_level_of_its_file_is_a_model_file(elastic: Elastic) -> None:
    write_data(elastic.folder)
    write_model(elastic.folder, TOP_LEVEL)
    flags = ("--model_def=model.py", "--validation_data=data")
    trained = elastic.train(*flags, "--training_data=data", "--num_workers=2", "--output=out")
    assert "inputs of the model: c, a, b; label: y" in trained.output
    assert "adapted Normalization 'normalization' to c, a, b" in trained.output
    evaluated = elastic.run("evaluate", *flags, "--model=out")
    assert evaluated.report["metrics"] == pytest.approx(trained.report["metrics"], rel=1e-5)


@pytest.mark.thorough
def test_a_subclassed_model_takes_the_columns_without_a_feed(elastic: Elastic) -> None:
    write_data(elastic.folder, records=2000)
    write_model(elastic.folder, SUBCLASSED)
    trained = elastic.train(
        "--model_def=model.py", "--training_data=data", "--num_workers=1", "--seed=5", "--num_epochs=2", "--output=out"
    )
    assert trained.report["audit"]["exact"]
    assert "inputs of the model: a, b, c; label: y" in trained.output
    lines = [line.rpartition(",")[0] for line in (elastic.folder / "data/train.csv").read_text().splitlines()]
    (elastic.folder / "new.csv").write_text("\n".join(lines) + "\n")
    predicted = elastic.run(
        *("predict", "--model=out", "--model_def=model.py", "--prediction_data=new.csv"),
        *("--output=predictions", "--keep_columns=a,b,c"),
    )
    assert predicted.exit_code == 0, predicted.output
    table = parquet.read_table(elastic.folder / "predictions").to_pydict()
    expected = np.array(table["a"]) + 2 * np.array(table["b"]) - 3 * np.array(table["c"])
    assert len(expected) == 2000 and np.abs(np.array(table["prediction_y"]).ravel() - expected).max() < 1.0
