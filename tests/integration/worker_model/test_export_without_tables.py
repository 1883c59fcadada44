"""A model that is exported with its tables in Parquet predicts elsewhere what it predicts in the job."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.integration.worker_model.test_export import DRAWN, WITH_COMBINERS
from tests.unit.ps.example import spec
from tests.unit.worker_model.conftest import RECOMMENDER, Tables, WriteModule, columns, runner_of

from elasticdl.layers import load_model
from elasticdl.shared.errors import UserError
from elasticdl.shared.exported.writing import TablesExport
from elasticdl.shared.job.spec import BestModel, ExportTables, Limits
from elasticdl.shared.model.initial_weights import WeightTable, write_weights
from elasticdl.shared.model.placement import ALL
from elasticdl.shared.storage import open_store, to_uri
from elasticdl.worker.model.export.without_tables import check_without_tables, choose_tables, write_without_tables
from elasticdl.worker.model.runner import ModelRunner

pytestmark = pytest.mark.tensorflow

LOAD = """
import sys
import numpy as np
import elasticdl.layers
inputs = np.load(sys.argv[2])
model = elasticdl.layers.load_model(sys.argv[1])
features = {name: inputs[name] for name in inputs.files}
np.save(sys.argv[3], model.predict(features, batch_size=3, verbose=0))
"""

SHARED = """
import elasticdl.layers

def custom_model():
    user = keras.Input((), dtype="int64", name="user")
    item = keras.Input((3,), dtype="int64", name="item")
    inner = keras.Sequential([keras.Input((3,), dtype="int64"), layers.Embedding(1000, 4), layers.Flatten()])
    shared = elasticdl.layers.Embedding(4, name="any_id")
    x = layers.Concatenate()([shared(user), layers.Flatten()(shared(item)), inner(item)])
    return keras.Model({"user": user, "item": item}, layers.Dense(1)(x))

def feed_batch(records, mode, metadata):
    return {"user": records["user"], "item": records["item"]}, records["label"]
"""


def write_export(runner: ModelRunner, dense: Any, tables: Tables, folder: Path) -> Path:
    """Export a model whose tables have these rows, all trained."""
    storage = to_uri(folder / "storage")
    manifest = write_weights(
        open_store(storage), storage, {}, {name: WeightTable.of(rows) for name, rows in tables.full.items()}
    )
    TablesExport(
        job="job",
        signature=runner.signature(),
        dense=dense,
        parts=[(manifest, ALL)],
        snapshots=open_store(storage),
        adapted=(),
        write_model=partial(write_without_tables, runner, dense),
    ).write(to_uri(folder / "out"))
    return folder / "out"


@pytest.mark.parametrize("body", [RECOMMENDER, WITH_COMBINERS, SHARED], ids=["swapped", "combiners", "shared"])
def test_a_loaded_export_predicts_what_the_job_predicts(write_module: WriteModule, tmp_path: Path, body: str) -> None:
    raw = columns()
    raw["item"][0] = 0
    runner, batch = runner_of(write_module(body), raw)
    tables = Tables(runner)
    dense = runner.initial_dense() + 0.1
    expected = runner.predict(batch, dense, tables.pull(batch, training=False)).ravel()
    out = write_export(runner, dense, tables, tmp_path)
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in batch.features.items()}
    np.savez(tmp_path / "inputs.npz", **arrays)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOAD, str(out), str(tmp_path / "inputs.npz"), str(tmp_path / "out.npy")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy").ravel(), expected, atol=1e-5)


SUBCLASSED = """
import elasticdl.layers

class Net(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.one = elasticdl.layers.Embedding(4, 1000, name="one")
        self.two = elasticdl.layers.Embedding(4, embeddings_initializer="zeros")
        self.out = layers.Dense(1)

    def call(self, features, training=False):
        return self.out(self.one(features["user"]) + self.two(features["user"]))

custom_model = Net

def feed_batch(records, mode, metadata):
    return {"user": records["user"]}, records["label"]
"""


def test_a_subclassed_model_loads_with_its_class(write_module: WriteModule, tmp_path: Path) -> None:
    module = write_module(SUBCLASSED)
    runner, batch = runner_of(module, columns())
    check_without_tables(runner)
    tables = Tables(runner)
    expected = runner.predict(batch, runner.initial_dense(), tables.pull(batch, training=False))
    out = write_export(runner, runner.initial_dense(), tables, tmp_path)
    model = load_model(out, custom_objects={"Net": vars(module.module)["Net"]}, cache_dir=tmp_path / "cache")
    np.testing.assert_allclose(model(batch.features), expected, atol=1e-5)
    np.testing.assert_allclose(model.predict(batch.features, verbose=0), expected, atol=1e-5)


def test_an_embedding_of_keras_in_a_class_of_the_user_is_refused(write_module: WriteModule) -> None:
    runner, _ = runner_of(
        write_module(SUBCLASSED.replace("elasticdl.layers.Embedding(4, 1000,", "layers.Embedding(1000, 4,")), columns()
    )
    with pytest.raises(UserError, match="embedding net/one is made in a class of the model file"):
        check_without_tables(runner)


def test_the_file_without_tables_is_not_loaded_as_a_whole_model(write_module: WriteModule, tmp_path: Path) -> None:
    runner, _ = runner_of(write_module(WITH_COMBINERS), columns())
    write_without_tables(runner, runner.initial_dense(), tmp_path / "m.keras")
    # Keras warns of each layer that it can't load.
    with warnings.catch_warnings(action="ignore"), pytest.raises(ValueError, match=r"load_model\(FOLDER\)"):
        keras.models.load_model(tmp_path / "m.keras", safe_mode=False)


def test_a_file_that_predicts_something_else_is_refused(write_module: WriteModule, tmp_path: Path) -> None:
    runner, _ = runner_of(write_module(DRAWN.format(shift="tf.random.normal((5,))")), columns())
    with pytest.raises(UserError, match=r"m\.keras predicts"):
        write_without_tables(runner, runner.initial_dense(), tmp_path / "m.keras")


def test_ids_outside_of_a_table_are_refused(write_module: WriteModule, tmp_path: Path) -> None:
    runner, batch = runner_of(write_module(RECOMMENDER), columns())
    out = write_export(runner, runner.initial_dense(), Tables(runner), tmp_path)
    model = load_model(out)
    with pytest.raises(Exception, match="id 1000 is asked for"):
        model({**batch.features, "user": batch.features["user"] + 1000 - batch.features["user"]})


@pytest.mark.parametrize(
    ("choice", "export_bytes_max", "whole", "expected"),
    [
        (ExportTables.AUTO, 1 << 30, False, (ExportTables.MODEL, "")),
        (ExportTables.AUTO, 1 << 10, False, (ExportTables.PARQUET, "because the model would be ")),
        (ExportTables.AUTO, 1 << 10, True, (ExportTables.MODEL, "")),
        (ExportTables.MODEL, 1 << 10, False, (ExportTables.MODEL, "")),
        (ExportTables.PARQUET, 1 << 30, True, (ExportTables.PARQUET, "tables are exported as Parquet files; ")),
    ],
)
def test_tables_are_in_files_of_their_own_if_the_model_is_large_or_the_user_wants_it(
    write_module: WriteModule,
    choice: ExportTables,
    export_bytes_max: int,
    whole: bool,
    expected: tuple[ExportTables, str],
) -> None:
    runner, _ = runner_of(write_module(RECOMMENDER), columns())
    job = replace(
        spec("memory://job"),
        output="memory://out",
        export_tables=choice,
        limits=Limits(export_bytes_max=export_bytes_max),
    )
    chosen, note = choose_tables(runner, job, needs_whole_models=whole)
    assert chosen is expected[0] and expected[1] in note
    assert choose_tables(runner, replace(job, output=""), needs_whole_models=whole) == (ExportTables.MODEL, "")


def test_the_best_model_has_its_tables_in_its_files(write_module: WriteModule) -> None:
    runner, _ = runner_of(write_module(RECOMMENDER), columns())
    job = replace(
        spec("memory://job"),
        output="memory://out",
        export_tables=ExportTables.PARQUET,
        best=BestModel(metric="loss", save=True),
    )
    with pytest.raises(UserError, match="Run without --save_best"):
        choose_tables(runner, job, needs_whole_models=True)
