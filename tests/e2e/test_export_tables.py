"""Exports with tables in Parquet: what a job writes is what other jobs and plain programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.e2e.elastic import Elastic

from elasticdl.layers import load_model

MODEL = """
import keras
import elasticdl.layers


def custom_model():
    user = keras.Input((1,), dtype="int64", name="user")
    item = keras.Input((1,), dtype="int64", name="item")
    any_id = elasticdl.layers.Embedding(4, name="any_id", min_count=2, expire_after=20)
    bounded = elasticdl.layers.Embedding(8, input_dim=400, name="bounded", min_count=2)
    rows = [keras.layers.Flatten()(one) for one in (any_id(user), any_id(item), bounded(item))]
    output = keras.layers.Dense(1, activation="sigmoid", name="label")(keras.layers.Concatenate()(rows))
    model = keras.Model({"user": user, "item": item}, output)
    model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
    return model
"""


def write_ids(file: Path, records: int, seed: int) -> tuple[dict[str, Any], Any]:
    """Write records with rare ids; returns their features and labels."""
    random = np.random.default_rng(seed)
    ids = np.minimum(random.zipf(1.3, (records, 2)) - 1, 399)
    labels = ids.sum(axis=1) % 3 == 0
    lines = (f"{user},{item},{int(label)}" for (user, item), label in zip(ids, labels, strict=True))
    file.write_text("user,item,label\n" + "\n".join(lines) + "\n")
    return {"user": ids[:, :1], "item": ids[:, 1:]}, labels


def loss_of(model: Any, features: dict[str, Any], labels: Any) -> float:
    predicted = np.asarray(model.predict(features, verbose=0), np.float64).ravel()
    return float(-np.log(np.where(labels, predicted, 1 - predicted)).mean())


def test_an_export_with_tables_in_parquet_is_the_model_of_the_job(elastic: Elastic) -> None:
    (elastic.folder / "model.py").write_text(MODEL)
    write_ids(elastic.folder / "train.csv", 2000, 1)
    features, labels = write_ids(elastic.folder / "test.csv", 500, 2)
    flags = ("--model_def=model.py", "--validation_data=test.csv", "--num_workers=1")
    trained = elastic.train(*flags, "--training_data=train.csv", "--num_ps_pods=2", "--output=out")
    assert "because a table has no input_dim" in trained.output
    assert trained.report["export_tables"] == "parquet"
    assert trained.report["tables"]["any_id"]["expired"] and trained.report["tables"]["bounded"]["candidates"]
    loss = trained.report["metrics"]["loss"]
    assert loss_of(load_model(elastic.folder / "out"), features, labels) == pytest.approx(loss, rel=1e-5)
    evaluated = elastic.run("evaluate", *flags, "--model=out", "--num_ps_pods=1")
    assert evaluated.exit_code == 0, evaluated.output
    assert "Loaded 4 of 4 variables from" in evaluated.output
    assert evaluated.report["metrics"]["loss"] == pytest.approx(loss, rel=1e-5)
    again = elastic.run("export", trained.job, "--output=again")
    assert again.exit_code == 0, again.output
    files = [
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.parquet")}
        for folder in (elastic.folder / "out", elastic.folder / "again")
    ]
    assert files[0] == files[1] != {}
