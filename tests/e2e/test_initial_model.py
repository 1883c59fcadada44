"""A job that starts from the weights of another job."""

from __future__ import annotations

from typing import Any

import keras
import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, write_data, write_model
from tests.e2e.test_more_epochs import weights_of

EMBEDDING = """
import keras
import tensorflow as tf
import elasticdl.layers


def custom_model():
    inputs = keras.Input((3,))
    ids = keras.ops.cast(inputs * 500.0 + 500.0, "int64")
    rows = elasticdl.layers.Embedding(8, input_dim=1001, combiner="mean")(ids)
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()([inputs, rows])))


""" + LINEAR[LINEAR.index("def loss") :]


def test_a_job_starts_from_the_weights_of_another_one(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder, records=1000)
    flags = ("--model_def=model.py", "--training_data=data", "--num_workers=1", "--seed=5")
    first = elastic.train(*flags, "--num_ps_pods=2", "--output=first")
    missing = elastic.run("train", *flags, "--initial_model=missing")
    assert missing.exit_code == 1 and "there is no job 'missing'" in missing.output
    write_model(elastic.folder, LINEAR.replace("SGD(0.05)", "SGD(0.0)"))
    second = elastic.train(*flags, f"--initial_model={first.job}", "--output=second")
    assert f"Initial weights: job {first.job} at step " in second.output
    assert f"Loaded 2 of 2 variables from job {first.job} at step " in second.output
    assert second.report["audit"]["exact"]
    assert weights_of(elastic.folder / "second/model.keras") == weights_of(elastic.folder / "first/model.keras")


@pytest.mark.thorough
def test_a_job_starts_from_an_export_and_from_a_file_of_plain_keras(elastic: Elastic) -> None:
    write_model(elastic.folder, EMBEDDING)
    write_data(elastic.folder)
    write_data(elastic.folder, 500, "validation/data.csv", seed=4)
    flags = ("--model_def=model.py", "--training_data=data", "--validation_data=validation", "--num_workers=1")
    first = elastic.train(*flags, "--num_ps_pods=2", "--num_epochs=2", "--output=first")
    expected = first.report["metrics"]
    write_model(elastic.folder, EMBEDDING.replace("SGD(0.05)", "SGD(0.0)"))
    second = elastic.train(*flags, "--initial_model=first", "--seed=99", "--num_ps_pods=3", "--output=second")
    assert second.report["metrics"] == pytest.approx(expected, rel=1e-5)
    note = f"Loaded 3 of 3 variables from {elastic.folder / 'first/model.keras'}."
    assert second.report["initial_model"] == {"source": str(elastic.folder / "first/model.keras"), "note": note}
    assert second.output.count(note) == 2, second.output  # At the start and in the summary.
    assert weights_of(elastic.folder / "second/model.keras") == weights_of(elastic.folder / "first/model.keras")
    plain: Any = keras.saving.load_model(elastic.folder / "first/model.keras")
    plain.set_weights([one * 0.5 for one in plain.get_weights()])
    plain.save(elastic.folder / "plain.keras")
    elastic.train(*flags, "--initial_model=plain.keras", "--output=third")
    assert weights_of(elastic.folder / "third/model.keras") == weights_of(elastic.folder / "plain.keras")


def test_what_is_no_model_is_refused_before_any_process_starts(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder)
    (elastic.folder / "weights.h5").touch()
    flags = ("--model_def=model.py", "--training_data=data")
    for value, reason in (
        ("gone.keras", "--initial_model=gone.keras does not exist"),
        ("data", "--initial_model=data is no .keras file, and holds neither model.keras nor saved_model.pb"),
        ("weights.h5", "--initial_model=weights.h5 holds weights without a model, so their names are unknown"),
    ):
        refused = elastic.run("train", *flags, f"--initial_model={value}")
        assert refused.exit_code == 2 and reason in refused.output, refused.output
    assert not list(elastic.jobs.glob("*"))
