"""Exported models load and predict in a process that has never heard of this package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.worker_model.conftest import RECOMMENDER, Tables, WriteModule, columns, runner_of

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.export.export import check_export, export, export_or_save_weights
from elasticdl.worker.model.export.without_tables import loading_notes
from elasticdl.worker.model.runner import ModelRunner, RunnerSettings
from elasticdl.worker.model.user.feeder import BatchFeeder

pytestmark = pytest.mark.tensorflow

LOAD = """
import json, sys
import numpy as np
import tensorflow as tf, keras
folder, inputs = sys.argv[1], np.load(sys.argv[2])
features = {name: inputs[name] for name in inputs.files}
kept = keras.models.load_model(folder + "/model.keras").predict(features, verbose=0)
saved = tf.saved_model.load(folder + "/saved_model")
served = saved.serve({k: tf.constant(v) for k, v in features.items()})
named = saved.signatures["serving_default"](**{k: tf.constant(v) for k, v in features.items()})
np.testing.assert_array_equal(*named.values(), served)
assert not [name for name in sys.modules if name.startswith("elasticdl")]
print(json.dumps([np.asarray(kept).ravel().tolist(), np.asarray(served).ravel().tolist()]))
"""

WITH_COMBINERS = """
import elasticdl.layers

def custom_model():
    user = keras.Input((), dtype="int64", name="user")
    item = keras.Input((3,), dtype="int64", name="item")
    numbers = keras.Input((5,), name="numbers")
    rows = [
        elasticdl.layers.Embedding(4, 1000, name="user_table")(user),
        elasticdl.layers.Embedding(4, 50, combiner="mean", mask_zero=True, name="mean")(item),
        elasticdl.layers.Embedding(4, 50, combiner="sqrtn", name="sqrtn")(item),
        numbers,
    ]
    x = layers.BatchNormalization()(layers.Concatenate()(rows))
    return keras.Model({"user": user, "item": item, "numbers": numbers}, layers.Dense(1)(x))
"""

WITH_CHANCE = """
def custom_model():
    numbers = keras.Input((5,), name="numbers")
    moved = layers.RandomTranslation(0.5, 0)(layers.Reshape((5, 1, 1))(numbers))
    return keras.Model({"numbers": numbers}, layers.Dense(1)(layers.Flatten()(moved)))

def feed_batch(records, mode, metadata):
    return {"numbers": records["numbers"]}, records["label"]
"""


def predictions_elsewhere(folder: Path, features: dict[str, Any]) -> list[list[float]]:
    """What both files predict in a process with an isolated path."""
    inputs = folder / "inputs.npz"
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in features.items()}
    np.savez(inputs, **arrays)
    command = [sys.executable, "-W", "ignore", "-c", LOAD, str(folder), str(inputs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    return loaded


@pytest.mark.parametrize("body", [RECOMMENDER, WITH_COMBINERS, WITH_CHANCE], ids=["swapped", "combiners", "chance"])
def test_exported_model_predicts_the_same_without_this_package(
    write_module: WriteModule, tmp_path: Path, body: str
) -> None:
    raw = columns()
    raw["item"][0] = 0
    runner, batch = runner_of(write_module(body), raw)
    tables = Tables(runner)
    dense = runner.initial_dense() + 0.1
    expected = runner.predict(batch, dense, tables.pull(batch, training=False)).ravel()
    output = tmp_path / "output"
    for _ in range(2):  # The second export replaces the first.
        export(runner, dense, lambda name, ids: tables.full[name][ids], output)
    assert sorted(path.name for path in output.iterdir()) == ["model.keras", "saved_model"]
    for loaded in predictions_elsewhere(output, batch.features):
        np.testing.assert_allclose(loaded, expected, atol=1e-5)


def test_a_subclassed_model_is_served_without_its_class(write_module: WriteModule, tmp_path: Path) -> None:
    import tensorflow as tf

    body = """
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(1000, 4)
            self.out = layers.Dense(1)

        def call(self, features, training=False):
            return self.out(self.table(features["user"]))

    custom_model = Net

    def feed_batch(records, mode, metadata):
        return {"user": records["user"]}, records["label"]
    """
    runner, batch = runner_of(write_module(body), columns())
    tables = Tables(runner)
    dense = runner.initial_dense() + 0.1
    export(runner, dense, lambda name, ids: tables.full[name][ids], tmp_path / "output")
    saved = tf.saved_model.load(str(tmp_path / "output/saved_model"))
    expected = runner.predict(batch, dense, tables.pull(batch, training=False))
    np.testing.assert_allclose(saved.serve(batch.features).numpy(), expected, atol=1e-5)


DRAWN = """
class Shifted(layers.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        self.shift = {shift}

    def call(self, x):
        return x + self.shift

def custom_model():
    numbers = keras.Input((5,), name="numbers")
    shifted = Shifted()(numbers)
    return keras.Model({{"numbers": numbers}}, {{"one": layers.Dense(1)(shifted), "two": layers.Dense(2)(shifted)}})

def loss(labels, predictions):
    return keras.losses.binary_crossentropy(labels, predictions["one"])

def feed_batch(records, mode, metadata):
    return {{"numbers": records["numbers"]}}, records["label"]
"""


@pytest.mark.parametrize(
    ("shift", "refused"),
    [
        ("3.0", None),
        ("tf.random.normal((5,))", "model.keras predicts"),
        ("np.random.default_rng().random(5).astype('float32')", "the model made for the export predicts"),
    ],
    ids=["equal", "drawn when the file is loaded", "drawn when the model is made"],
)
def test_what_is_exported_is_what_was_trained(
    write_module: WriteModule, tmp_path: Path, shift: str, refused: str | None
) -> None:
    runner, _ = runner_of(write_module(DRAWN.format(shift=shift)), columns())
    if refused is None:
        export(runner, runner.initial_dense(), lambda *_: np.zeros(0, np.float32), tmp_path / "output")
        return
    with pytest.raises(UserError, match=refused):
        export(runner, runner.initial_dense(), lambda *_: np.zeros(0, np.float32), tmp_path / "output")
    assert not list((tmp_path / "output").iterdir())


def test_a_file_that_predicts_something_else_is_named(write_module: WriteModule, tmp_path: Path) -> None:
    body = DRAWN.format(shift="0.0").replace("shifted = Shifted()(numbers)", "layer = Shifted()\n    layer.shift = 1.0")
    body = body.replace("layer.shift = 1.0\n", "layer.shift = 1.0\n    shifted = layer(numbers)\n")
    runner, _ = runner_of(write_module(body), columns())
    with pytest.raises(UserError, match=r"model.keras predicts .* where the trained model predicts"):
        export(runner, runner.initial_dense() + 0.1, lambda *_: np.zeros(0, np.float32), tmp_path / "output")


def test_a_model_that_samples_when_it_predicts_is_exported(write_module: WriteModule, tmp_path: Path) -> None:
    body = DRAWN.format(shift="0.0").replace("x + self.shift", "x + keras.random.normal(keras.ops.shape(x))")
    runner, _ = runner_of(write_module(body), columns())
    export(runner, runner.initial_dense(), lambda *_: np.zeros(0, np.float32), tmp_path / "output")
    assert (tmp_path / "output" / "model.keras").exists()


def test_a_model_above_the_limit_is_refused_before_training(write_module: WriteModule) -> None:
    runner, _ = runner_of(write_module(RECOMMENDER), columns())
    size = check_export(runner, 1 << 20)
    assert size == 4 * (runner.dense.size + 1000 * 4 + 50 * 4)
    with pytest.raises(UserError, match="largest table is user_table, 1,000 x 4"):
        check_export(runner, size - 1)


def test_an_open_ended_table_is_not_exported(write_module: WriteModule) -> None:
    body = """
    import elasticdl.layers

    def custom_model():
        user = keras.Input((), dtype="int64", name="user")
        return keras.Model({"user": user}, layers.Dense(1)(elasticdl.layers.Embedding(4, name="open")(user)))

    def feed_batch(records, mode, metadata):
        return {"user": records["user"]}, records["label"]
    """
    module = write_module(body)
    runner, batch = runner_of(module, columns())
    assert BatchFeeder(module, "predict", None).feed(columns()) is not None
    assert runner.train(batch, runner.initial_dense(), Tables(runner).pull(batch), step_seed=1).finite
    with pytest.raises(UserError, match="open has no input_dim"):
        check_export(runner, 1 << 30)


SUBCLASSED = """
def twice(x):
    return 2 * x

{registered}
class Tower(layers.Layer):
    def __init__(self, {argument}**kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(1, activation={activation})
    def build(self, shape):
        self.dense.build(shape)
    def call(self, x):
        return self.dense(x)

def custom_model():
    numbers = keras.Input((5,), name="numbers")
    return keras.Model({{"numbers": numbers}}, Tower({value})(numbers))

def feed_batch(records, mode, metadata):
    return {{"numbers": records["numbers"]}}, records["label"]
"""


def subclassed(registered: str = "", activation: str = "None", argument: str = "", value: str = "") -> str:
    return SUBCLASSED.format(registered=registered, activation=activation, argument=argument, value=value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (RECOMMENDER, None),
        (subclassed("@keras.saving.register_keras_serializable('test_export')"), None),
        (subclassed(), "Tower is not registered"),
        (WITH_CHANCE.replace("layers.Dense(1)", "layers.Lambda(lambda x: x[:, :1])"), "loads with safe_mode=False, if"),
        (WITH_COMBINERS, None),
    ],
)
def test_what_the_keras_file_needs_to_load_is_told_at_the_start(
    write_module: WriteModule, body: str, words: str | None
) -> None:
    notes = loading_notes(runner_of(write_module(body), columns())[0])
    assert len(notes) == (words is not None)
    assert words is None or words in notes[0]


def test_a_function_of_the_users_own_is_named(write_module: WriteModule) -> None:
    body = WITH_CHANCE.replace("layers.Dense(1)", "layers.Dense(1, activation=twice)")
    (note,) = loading_notes(runner_of(write_module(body + "\ndef twice(x):\n    return 2 * x\n"), columns())[0])
    assert "twice() is not registered" in note


def test_a_model_that_can_not_be_described_is_refused_at_the_start(write_module: WriteModule) -> None:
    runner, _ = runner_of(write_module(subclassed(argument="thing, ", value="object()")), columns())
    with pytest.raises(UserError, match="Tower was created by passing"):
        loading_notes(runner)


NO_KEYWORDS = """
FACTOR = 3.0

class Tower(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.units = units
        self.dense = layers.Dense(units, name="inner")

    def call(self, x):
        return self.dense(x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}

def custom_model(units=2):
    numbers = keras.Input((5,), name="numbers")
    return keras.Model({"numbers": numbers}, layers.Dense(1)(LAYER(numbers)))

def feed_batch(records, mode, metadata):
    return {"numbers": records["numbers"]}, records["label"]
"""
NO_KEYWORDS, GLOBAL = (
    NO_KEYWORDS.replace("LAYER", each) for each in ("Tower(units)", "layers.Lambda(lambda x: x * FACTOR)")
)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (NO_KEYWORDS, "Tower.__init__() does not take '"),
        (GLOBAL, "a Lambda layer is whole in a file only if it uses nothing but its arguments"),
    ],
)
def test_a_file_that_does_not_load_is_told_with_what_does(
    write_module: WriteModule, tmp_path: Path, body: str, reason: str
) -> None:
    runner, batch = runner_of(write_module(body), columns())
    dense = runner.initial_dense() + 0.1
    output = tmp_path / "output"
    (note,) = export(runner, dense, lambda *_: np.zeros(0, np.float32), output)
    assert reason in note
    assert 'saved_model loads, and so do the weights: custom_model().load_weights("model.keras")' in note
    assert "config" not in note.replace("get_config()", "")

    module = runner.module.with_exported(output / "model.keras", "out/model.keras")
    assert module.weights is not None
    assert reason in module.weights.note("custom_model")
    again = ModelRunner(module, batch, RunnerSettings(swap_bytes_min=1 << 62))
    np.testing.assert_allclose(again.predict(batch, again.initial_dense(), {}), runner.predict(batch, dense, {}))


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("units=2", "units=3", "the variables of layer dense are (2, 1), (1,) there and (3, 1), (1,) here"),
        ('name="inner"', 'name="outer"', "the layer inner of the file is called outer in the model"),
        (
            "layers.Dense(1)(Tower",
            "layers.Dense(1, use_bias=False)(Tower",
            "the variables of layer dense are (2, 1), (1,)",
        ),
        ("layers.Dense(1)(Tower(units)(numbers))", "Tower(units)(numbers)", "the file has a layer dense"),
    ],
)
def test_weights_of_another_model_are_refused(
    write_module: WriteModule, tmp_path: Path, old: str, new: str, difference: str
) -> None:
    assert old in NO_KEYWORDS
    runner, batch = runner_of(write_module(NO_KEYWORDS), columns())
    export(runner, runner.initial_dense(), lambda *_: np.zeros(0, np.float32), tmp_path / "output")
    other = write_module(NO_KEYWORDS.replace(old, new), name="other")
    other = other.with_exported(tmp_path / "output" / "model.keras", "out/model.keras")
    with pytest.raises(UserError, match=r"out/model.keras can't be loaded as a model: Tower.*" + re.escape(difference)):
        ModelRunner(other, batch, RunnerSettings())


SHAPES = """
def custom_model():
    one = keras.Input((1,), name="one")
    many = keras.Input((None,), dtype="int64", name="many")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(10, 2)(many))
    return keras.Model({inputs}, layers.Dense(1)(layers.Concatenate()([one, x])))

def feed_batch(records, mode, metadata):
    return {{"one": records["numbers"][:, 0], "many": tf.cast(records["item"] % 10, tf.int32)}}, records["label"]
"""


@pytest.mark.parametrize("inputs", ["[one, many]", '{"one": one, "many": many}'])
def test_the_inputs_of_the_saved_model_are_those_of_keras_own_export(
    write_module: WriteModule, tmp_path: Path, inputs: str
) -> None:
    import tensorflow as tf

    module = write_module(SHAPES.format(inputs=inputs))
    runner, _ = runner_of(module, columns(), swap_bytes_min=1 << 62)
    export(runner, runner.initial_dense(), lambda *_: np.zeros(0, np.float32), tmp_path / "ours")
    runner.built.model.export(tmp_path / "keras", verbose=False)
    ours, theirs = (tf.saved_model.load(str(tmp_path / name)) for name in ("ours/saved_model", "keras"))
    signatures = [one.signatures["serving_default"].structured_input_signature[1] for one in (ours, theirs)]
    assert signatures[0] == signatures[1]
    assert signatures[0]["one"].shape == (None, 1)
    taken = {"one": tf.ones((3, 1)), "many": tf.ones((3, 7), tf.int64)}
    given = taken if "{" in inputs else [taken["one"], taken["many"]]
    np.testing.assert_allclose(ours.serve(given), theirs.serve(given))


def test_a_sequential_model_has_the_signature_of_its_input(write_module: WriteModule, tmp_path: Path) -> None:
    import tensorflow as tf

    body = """
    def custom_model():
        return keras.Sequential([keras.Input((1,), name="x"), layers.Dense(1)])

    def feed_batch(records, mode, metadata):
        return records["numbers"][:, 0], records["label"]
    """
    runner, _ = runner_of(write_module(body), columns())
    export(runner, runner.initial_dense(), lambda *_: np.zeros(0, np.float32), tmp_path / "output")
    loaded = tf.saved_model.load(str(tmp_path / "output/saved_model"))
    assert loaded.serve(tf.ones((4, 1))).shape == (4, 1)


def test_what_layers_raise_while_they_are_written_is_one_sentence(write_module: WriteModule, tmp_path: Path) -> None:
    body = NO_KEYWORDS.replace(
        "    def get_config", "    def save_assets(self, folder):\n        return {}['x']\n\n    def get_config"
    )
    runner, _ = runner_of(write_module(body), columns())
    with pytest.raises(UserError, match=r"writing model.keras of model.py raised KeyError at model.py:\d+: 'x'"):
        export(runner, runner.initial_dense(), lambda *_: np.zeros(0, np.float32), tmp_path / "output")
    assert not list((tmp_path / "output").iterdir())
    with pytest.raises(UserError, match="The weights are in"):
        export_or_save_weights(runner, runner.initial_dense(), lambda *_: np.zeros(0, np.float32), tmp_path / "output")
    assert [path.name for path in (tmp_path / "output").iterdir()] == ["trained.weights.h5"]


TABLE_IN_CALL = """
class Table(layers.Layer):
    def call(self, x):
        values = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2], tf.int64), tf.constant([1.0, 2.0]))
        return tf.lookup.StaticHashTable(values, 0.0).lookup(tf.cast(x, tf.int64))

def custom_model():
    numbers = keras.Input((5,), name="numbers")
    return keras.Model({"numbers": numbers}, layers.Dense(1)(Table(name="ranks")(numbers)))

def feed_batch(records, mode, metadata):
    return {"numbers": records["numbers"]}, records["label"]
"""


def test_a_layer_with_a_table_that_it_does_not_hold_is_named(write_module: WriteModule, tmp_path: Path) -> None:
    runner, _ = runner_of(write_module(TABLE_IN_CALL), columns())
    with pytest.raises(UserError, match=r"layer 'ranks' can't be written as saved_model(.|\n)*self.table = "):
        export(runner, runner.initial_dense(), lambda *_: np.zeros(0, np.float32), tmp_path / "output")
