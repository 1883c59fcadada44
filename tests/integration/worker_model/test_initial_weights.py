"""The weights in files of Keras, matched with a model by name, as the ps get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.integration.worker_model.test_export import WITH_COMBINERS
from tests.unit.worker_model.conftest import RECOMMENDER, Tables, WriteModule, columns, runner_of

from elasticdl.ps.shard.core import new_model
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.kept_versions import read_warm_start
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import InitialModel
from elasticdl.shared.model.partitioning import dense_part
from elasticdl.shared.model.placement import ALL, PARTITIONS, Ranges
from elasticdl.shared.names import JobId
from elasticdl.worker.model.build import make
from elasticdl.worker.model.embeddings.swap import Census
from elasticdl.worker.model.export.export import export
from elasticdl.worker.model.initial.conversion import prepare
from elasticdl.worker.model.runner import ModelRunner

pytestmark = pytest.mark.tensorflow

Save = Callable[[Any, Path], Path]

NUMBERS = """
def feed_batch(records, mode, metadata):
    return records["numbers"], records["label"]
"""
SEQUENTIAL = (
    """
def custom_model():
    return keras.Sequential([layers.Dense(4), layers.BatchNormalization(), layers.Dense(1)])
"""
    + NUMBERS
)
NESTED = (
    """
def custom_model():
    numbers = keras.Input((5,))
    towers = [keras.Sequential([layers.Dense(3, name="inner")], name=name) for name in ("left", "right")]
    ready = keras.Input((5,))
    ready = keras.Model(ready, layers.Dense(2, name="inner")(ready), name="ready")
    parts = [*(tower(numbers) for tower in towers), ready(numbers)]
    return keras.Model(numbers, layers.Dense(1, name="inner")(layers.Concatenate()(parts)))
"""
    + NUMBERS
)
SUBCLASS = (
    """
class Net(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.parts = [layers.Dense(3), layers.Dense(2)]
        self.last = layers.Dense(1)

    def call(self, inputs, training=False):
        for part in self.parts:
            inputs = part(inputs)
        return self.last(inputs)

custom_model = Net
"""
    + NUMBERS
)
TOWERS = NESTED.replace(", ready(numbers)]", "]")
BODIES = {
    "functional": RECOMMENDER,
    "sequential": SEQUENTIAL,
    "towers": TOWERS,
    "nested": NESTED,
    "subclass": SUBCLASS,
}
NUMBERED_BODIES = {
    **{name: BODIES[name] for name in ("functional", "sequential", "towers", "subclass")},
    "combiners": WITH_COMBINERS.replace(', name="sqrtn"', "").replace(', name="mean"', ""),
}
AMBIGUOUS = {"nested": "inner/bias", "subclass": "net/bias"}
"""Names that a SavedModel of such a model gives to several variables."""


def save_keras(model: Any, folder: Path) -> Path:
    model.save(folder / "plain.keras")
    return folder / "plain.keras"


def save_export(model: Any, folder: Path) -> Path:
    model.export(folder / "exported", verbose=False)
    return folder / "exported"


def save_checkpoint(model: Any, folder: Path) -> Path:
    import tensorflow as tf

    tf.saved_model.save(model, folder / "saved")
    return folder / "saved"


def plain_model(runner: ModelRunner) -> Any:
    """The model of a model file as plain Keras makes it, compiled, with other weights."""
    model = make(runner.module, runner.example, Census(swap_bytes_min=0, plain=True), seed=1)
    random = np.random.default_rng(3)
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    model.set_weights([random.normal(size=one.shape).astype(np.float32) for one in model.get_weights()])
    return model


def rows_of(tables: Mapping[str, Any], name: str, ids: Any) -> Any:
    return tables[name][ids]


def loaded(runner: ModelRunner, initial: InitialModel, owned: Ranges = ALL) -> tuple[Any, Any]:
    """The dense values of a ps with some partitions, and its rows of every table by id."""
    warm = read_warm_start(initial, UpdatePolicy(), owned)
    signature = runner.signature()
    values = dense_part(signature.dense, owned).gather(runner.initial_dense())
    shard = new_model(signature, UpdatePolicy(), owned, values, warm)
    rows = {}
    for store in shard.tables:
        ids, weights = store.stored_weights(0, store.rows)
        rows[store.table.name] = dict(zip(ids.tolist(), weights, strict=True))
    return shard, rows


def started(runner: ModelRunner, file: Path, storage: Path) -> InitialModel:
    return prepare(InitialModel(job=JobId(""), file=file.as_uri()), runner, storage.as_uri())


def predictions(runner: ModelRunner, batch: Any, initial: InitialModel) -> Any:
    """What the new model predicts with the weights that a single ps has."""
    shard, rows = loaded(runner, initial)
    tables = Tables(runner)
    for name, table in tables.full.items():
        table[:] = [rows[name][number] for number in range(len(table))]
    return runner.predict(batch, shard.whole_dense(), tables.pull(batch, training=False))


@pytest.mark.parametrize("save", [save_keras, save_export, save_checkpoint])
@pytest.mark.parametrize("body", BODIES)
def test_the_model_predicts_what_the_file_of_plain_keras_predicts(
    write_module: WriteModule, tmp_path: Path, body: str, save: Save
) -> None:
    runner, batch = runner_of(write_module(BODIES[body]), columns())
    model = plain_model(runner)
    file = save(model, tmp_path)
    if body in AMBIGUOUS and save is not save_keras:
        with pytest.raises(UserError, match=f"has several variables with the name {AMBIGUOUS[body]}, so"):
            started(runner, file, tmp_path)
        return
    initial = started(runner, file, tmp_path)
    count = len(runner.dense.specs) + len(runner.tables)
    assert initial.note == f"Loaded {count} of {count} variables from {file}."
    expected = model.predict_on_batch(batch.features)
    np.testing.assert_allclose(predictions(runner, batch, initial), expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(runner.predict(batch, runner.initial_dense(), Tables(runner).pull(batch)), expected)


@pytest.mark.parametrize("name", ["model.keras", "saved_model"])
def test_an_export_with_combined_tables_is_loaded_by_name(write_module: WriteModule, tmp_path: Path, name: str) -> None:
    unnamed = WITH_COMBINERS.replace(', name="sqrtn"', "").replace(', name="mean"', "")
    for number, body in enumerate((WITH_COMBINERS, unnamed)):
        folder = tmp_path / str(number)
        runner, batch = runner_of(write_module(body, name=f"model{number}"), columns())
        tables = Tables(runner)
        dense = runner.initial_dense() + 0.1
        export(runner, dense, partial(rows_of, tables.full), folder / "out")
        initial = started(runner, folder / "out" / name, folder)
        assert initial.note.startswith("Loaded 9 of 9 variables"), initial.note
        expected = runner.predict(batch, dense, tables.pull(batch, training=False))
        np.testing.assert_allclose(predictions(runner, batch, initial), expected, rtol=1e-5)


def test_a_model_that_was_saved_outside_of_a_job_keeps_the_tables_of_its_embedding_layers(
    write_module: WriteModule, tmp_path: Path
) -> None:
    module = write_module(WITH_COMBINERS)
    runner, batch = runner_of(module, columns())
    outside = module.make_model()
    outside.save(tmp_path / "outside.keras")
    initial = started(runner, tmp_path / "outside.keras", tmp_path)
    assert initial.note.startswith("Loaded 9 of 9 variables"), initial.note
    expected = outside.predict_on_batch(batch.features)
    np.testing.assert_allclose(predictions(runner, batch, initial), expected, rtol=1e-5)


def test_rows_of_a_table_with_any_number_of_ids_are_no_difference(write_module: WriteModule, tmp_path: Path) -> None:
    open_ended = WITH_COMBINERS.replace("(4, 1000,", "(4,")
    runner, _ = runner_of(write_module(open_ended), columns())
    write_module(WITH_COMBINERS, name="closed").make_model().save(tmp_path / "closed.keras")
    initial = started(runner, tmp_path / "closed.keras", tmp_path)
    assert initial.note == f"Loaded 9 of 9 variables from {tmp_path / 'closed.keras'}."
    assert len(loaded(runner, initial)[1]["user_table"]) == 1000


@pytest.mark.parametrize(
    ("body", "save"),
    [
        *((body, save_keras) for body in NUMBERED_BODIES),
        *((body, save) for body in NUMBERED_BODIES if body not in AMBIGUOUS for save in (save_export, save_checkpoint)),
    ],
)
def test_layers_that_keras_has_numbered_otherwise_are_the_same_layers(
    write_module: WriteModule, tmp_path: Path, body: str, save: Save
) -> None:
    runner, batch = runner_of(write_module(NUMBERED_BODIES[body]), columns())
    for _ in range(2):
        keras.Sequential([keras.layers.Dense(1), keras.layers.Flatten()])
    model = runner.module.make_model()
    expected = model.predict_on_batch(batch.features)
    assert any("_" in layer.name and layer.name[-1] in "23456789" for layer in model._flatten_layers())
    initial = started(runner, save(model, tmp_path), tmp_path)
    count = len(runner.dense.specs) + len(runner.tables)
    assert initial.note.startswith(f"Loaded {count} of {count} variables"), initial.note
    np.testing.assert_allclose(predictions(runner, batch, initial), expected, rtol=1e-5, atol=1e-6)


def test_names_count_where_the_numbers_have_other_gaps(write_module: WriteModule, tmp_path: Path) -> None:
    layers = '[layers.Dense(5, name="dense_1"), layers.Dense(5, name="dense_3"), layers.Dense(1, name="dense_4")]'
    body = f"def custom_model():\n    return keras.Sequential({layers})\n" + NUMBERS
    runner, _ = runner_of(write_module(body.replace("dense_3", "dense_2"), name="new"), columns())
    model = plain_model(runner_of(write_module(body, name="trained"), columns())[0])
    initial = started(runner, save_keras(model, tmp_path), tmp_path)
    assert "Loaded 4 of 6 variables" in initial.note and "New in this model: sequential/dense_2/kernel" in initial.note
    shard, _ = loaded(runner, initial)
    np.testing.assert_array_equal(shard.whole_dense()[:25].reshape(5, 5), model.get_weights()[0])


def test_each_ps_gets_the_rows_of_its_partitions(write_module: WriteModule, tmp_path: Path) -> None:
    runner, _ = runner_of(write_module(RECOMMENDER), columns())
    file = save_keras(plain_model(runner), tmp_path)
    initial = started(runner, file, tmp_path)
    _, all_rows = loaded(runner, initial)
    _, first = loaded(runner, initial, ((0, 100),))
    _, second = loaded(runner, initial, ((100, PARTITIONS),))
    for name, rows in all_rows.items():
        assert 0 < len(first[name]) < len(rows)
        assert sorted([*first[name], *second[name]]) == sorted(rows)


def test_a_part_of_the_model_is_loaded_and_the_rest_is_named(write_module: WriteModule, tmp_path: Path) -> None:
    runner, _ = runner_of(write_module(RECOMMENDER), columns())
    file = save_keras(plain_model(runner), tmp_path)
    body = RECOMMENDER.replace("items, width", "items, 2 * width").replace("Dense(8,", 'Dense(8, name="hidden",')
    other, _ = runner_of(write_module(body, name="other", users=1200), columns())
    initial = started(other, file, tmp_path)
    assert initial.note == (
        f"Loaded 1 of 6 variables from {file}. Different shape: dense/kernel (8, 1) (there (21, 8)), "
        "dense/bias (1,) (there (8,)), item_table (8,) (there (4,)). "
        "Different number of rows: user_table 1,200 (there 1,000). New in this model: hidden/kernel, hidden/bias. "
        "Unused: dense_1/kernel, dense_1/bias."
    )
    shard, rows = loaded(other, initial)
    np.testing.assert_array_equal(shard.whole_dense(), other.initial_dense())
    assert len(rows["user_table"]) == 1000 and not rows["item_table"]


def test_what_can_not_be_right_is_refused_with_one_sentence(write_module: WriteModule, tmp_path: Path) -> None:
    runner, _ = runner_of(write_module(SEQUENTIAL), columns())
    model = plain_model(runner)
    model.layers[0].bias.assign([0.0, np.nan, 0.0, 0.0])
    with pytest.raises(UserError, match=r"variable sequential/dense/bias in .*plain\.keras has values that are NaN"):
        started(runner, save_keras(model, tmp_path), tmp_path)
    other, _ = runner_of(write_module(RECOMMENDER, name="other"), columns())
    stranger = keras.Sequential([keras.Input((5,)), keras.layers.Dense(2, name="stranger")])
    with pytest.raises(UserError, match=r"no variable of the model has the name .* New in this model: dense/kernel"):
        started(other, save_keras(stranger, tmp_path), tmp_path)
    (tmp_path / "broken.keras").write_text("no model")
    with pytest.raises(UserError, match=r"broken\.keras can't be loaded as a Keras model"):
        started(runner, tmp_path / "broken.keras", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty can't be read as a SavedModel"):
        started(runner, tmp_path / "empty", tmp_path)
