"""Labels that are texts or booleans, without a feed: the model of ``fit``, and predictions in the words of the data."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.e2e.elastic import Elastic, Outcome, write_lines
from tests.e2e.models import write_model

RECORDS = 240

FLOWERS = """
import keras


def custom_model():
    inputs = [keras.Input((1,), name=name) for name in ("a", "b")]
    dense = keras.layers.Dense(3, kernel_initializer=keras.initializers.GlorotUniform(seed=1))
    model = keras.Model(inputs, dense(keras.layers.Concatenate()(inputs)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.1), loss=loss, metrics=["accuracy"])
    return model
"""
FIT = """
import json
import keras, numpy as np
import model as user

rows = [line.split(",") for line in open("train.csv").read().splitlines()[1:]]
names = sorted({row[2] for row in rows})
features = [np.array([[float(row[place])] for row in rows], np.float32) for place in (0, 1)]
labels = np.array([names.index(row[2]) for row in rows])
own = user.custom_model()
history = own.fit(features, labels, batch_size=16, epochs=4, shuffle=False, verbose=0)
trained = keras.saving.load_model("out/model.keras")
for mine, theirs in zip(own.trainable_weights, trained.trainable_weights, strict=True):
    np.testing.assert_allclose(theirs, mine, rtol=1e-5, atol=1e-5)
words = [names[row.argmax()] for row in own.predict(features, verbose=0)]
print(json.dumps({"loss": history.history["loss"][-1], "words": words}))
"""
RETURNED = """
import keras

label = "returned"


def custom_model():
    inputs = [keras.Input((1,), name=name) for name in ("a", "b")]
    model = keras.Model(inputs, keras.layers.Dense(1, activation=ACTIVATION)(keras.layers.Concatenate()(inputs)))
    model.compile(keras.optimizers.Adam(0.1), loss=keras.losses.BinaryCrossentropy(from_logits=LOGITS))
    return model
"""


def kind_of(a: float, b: float) -> str:
    return "setosa" if a > b else "versicolor" if a + b > 0 else "virginica"


def rows() -> list[tuple[float, float]]:
    numbers = random.Random(3)
    return [(round(numbers.gauss(0, 1), 3), round(numbers.gauss(0, 1), 3)) for _ in range(RECORDS)]


def trained(elastic: Elastic, *flags: str) -> Outcome:
    """Train the model of the flowers, exported to ``out``; their data without the kind is ``new.csv``."""
    write_model(elastic.folder, FLOWERS)
    data = rows()
    write_lines(elastic.folder / "train.csv", ["a,b,kind", *(f"{a},{b},{kind_of(a, b)}" for a, b in data)])
    write_lines(elastic.folder / "new.csv", ["a,b", *(f"{a},{b}" for a, b in data)])
    return elastic.train(
        *("--model_def=model.py", "--training_data=train.csv", "--validation_data=train.csv", "--output=out"),
        *("--minibatch_size=16", "--num_epochs=4", *flags),
    )


def predicted(elastic: Elastic, model: str) -> list[str]:
    """The kind of each flower."""
    output = f"predictions-{model.replace('/', '-')}"
    done = elastic.run(
        *("predict", f"--model={model}", "--model_def=model.py", "--prediction_data=new.csv", f"--output={output}")
    )
    assert done.exit_code == 0, done.output
    table = pa.parquet.read_table(elastic.folder / output)
    assert table.column_names == ["prediction", "predicted_kind"]
    words: list[str] = table["predicted_kind"].to_pylist()
    return words


def test_one_worker_trains_the_model_of_fit_and_predicts_names(elastic: Elastic) -> None:
    done = trained(elastic, "--shuffle=none", "--use_async=false", "--num_workers=1")
    assert "label: kind; classes of kind: setosa, versicolor, virginica" in done.output
    compared = subprocess.run(
        [sys.executable, "-c", FIT], cwd=elastic.folder, capture_output=True, text=True, check=False
    )
    assert compared.returncode == 0, compared.stderr[-3000:]
    fit = json.loads(compared.stdout.splitlines()[-1])
    assert done.report["history"]["epochs"][-1]["loss"] == pytest.approx(fit["loss"], rel=1e-4)

    assert predicted(elastic, "out") == fit["words"]

    write_lines(elastic.folder / "other.csv", ["a,b,kind", *["1,2,setosa"] * 20, "1,2,rose", "1,2,setosa"])
    refused = elastic.run("evaluate", "--model=out", "--model_def=model.py", "--validation_data=other.csv")
    assert refused.exit_code != 0
    problem = "other.csv: label 'rose' in column 'kind' is no class of the model, which knows setosa, versicolor"
    assert "Error: record 20 (from 0) of" in refused.output and problem in refused.output


@pytest.mark.thorough
def test_the_classes_come_with_the_job_and_each_exported_file(elastic: Elastic) -> None:
    done = trained(elastic, "--num_workers=2")
    words = predicted(elastic, "out")
    for model in (done.job, "out/saved_model"):
        assert predicted(elastic, model) == words
        evaluated = elastic.run("evaluate", f"--model={model}", "--model_def=model.py", "--validation_data=train.csv")
        assert evaluated.report["metrics"] == pytest.approx(done.report["metrics"], rel=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(("activation", "logits"), [("sigmoid", False), (None, True)])
def test_booleans_in_parquet_are_predicted_as_booleans(elastic: Elastic, activation: str | None, logits: bool) -> None:
    text = RETURNED.replace("ACTIVATION", repr(activation)).replace("LOGITS", str(logits))
    write_model(elastic.folder, text)
    data = rows()
    columns = {"a": [a for a, _ in data], "b": [b for _, b in data], "returned": [a > b for a, b in data]}
    pa.parquet.write_table(pa.table(columns), elastic.folder / "train.parquet")
    flags = ("--training_data=train.parquet", "--num_workers=2", "--num_epochs=20", "--minibatch_size=16")
    done = elastic.train("--model_def=model.py", *flags, "--output=out")
    assert "classes of returned: False, True" in done.output
    written = elastic.run(
        *("predict", "--model=out", "--model_def=model.py", "--prediction_data=train.parquet"),
        *("--output=predictions", "--keep_columns=returned", "--output_format=csv"),
    )
    assert written.exit_code == 0, written.output
    (part,) = Path(elastic.folder, "predictions").glob("*.csv")
    lines = part.read_text().splitlines()[1:]
    words = [(line.split(",")[0], line.split(",")[2].strip().strip('"')) for line in lines]
    right = [known == word.lower() for known, word in words]
    assert len(right) == RECORDS and sum(right) > 0.9 * RECORDS
