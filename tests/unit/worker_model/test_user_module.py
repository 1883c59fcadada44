"""The model file: loaded, and checked against the contract."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import ModelFile, check_syntax, resolve
from elasticdl.worker.model.user.calls import UserCodeError, user_code
from elasticdl.worker.model.user.module import load

from .conftest import HEADER, RECOMMENDER, WriteModule, columns, runner_of

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("name", ["model", "keras", "json", "colorsys"])
def test_modules_beside_a_file_of_any_name_can_be_imported(tmp_path: Path, name: str) -> None:
    (tmp_path / "beside_the_model.py").write_text("WIDTH = 7\n")
    path = tmp_path / f"{name}.py"
    path.write_text(HEADER + "import beside_the_model\nclass Net(keras.Model):\n    width = beside_the_model.WIDTH\n")
    module = load(ModelFile(path=path, symbol="Net"))
    assert module.make_model().width == 7
    assert not (tmp_path / "__pycache__").exists()
    if name != "model":  # Other code gets the module that it means.
        assert getattr(importlib.import_module(name), "__file__", None) != str(path)


def test_a_file_in_a_package_may_import_relatively(tmp_path: Path) -> None:
    package = tmp_path / "zoo_of_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "layers_of_mine.py").write_text("UNITS = 3\n")
    (package / "net.py").write_text(HEADER + "from .layers_of_mine import UNITS\ncustom_model = keras.Model\n")
    assert load(ModelFile(path=package / "net.py")).module.UNITS == 3


def test_params_reach_the_model_function(write_module: WriteModule) -> None:
    runner, _ = runner_of(write_module(RECOMMENDER, width=6), columns())
    assert {table.width for table in runner.tables} == {6}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def custom_model():\n    return 3\n", "must return a keras.Model, not int"),
        ("def custom_model(wrong):\n    pass\n", r"custom_model\(\) of model.py raised TypeError"),
        (RECOMMENDER + "\ndef optimizer():\n    return 'sgd'\n", "must return a Keras optimizer, not str"),
        (
            RECOMMENDER.replace("layers.Dense(8,", "layers.Dense(8, kernel_constraint='max_norm',"),
            "has the constraint MaxNorm, which needs whole variables",
        ),
        (
            RECOMMENDER + "\ndef optimizer():\n    return keras.optimizers.SGD(0.1, use_ema=True)\n",
            "use_ema of the optimizer can't be used with the table",
        ),
        (
            RECOMMENDER + "\ndef loss(labels, predictions):\n    return labels['x']\n",
            r"raised TypeError at model.py:\d+",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(write_module: WriteModule, body: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        runner_of(write_module(body), columns())


def test_weights_need_a_loss_with_three_arguments(write_module: WriteModule) -> None:
    body = RECOMMENDER + "\ndef feed_batch(r, mode, m):\n    y = r.pop('label')\n    return r, y, tf.reshape(y, [-1])\n"
    with pytest.raises(UserError, match="loss takes two arguments"):
        runner_of(write_module(body), columns())


def test_an_error_while_importing_shows_the_line(write_module: WriteModule) -> None:
    with pytest.raises(UserCodeError, match=r"importing of model.py raised NameError") as caught:
        write_module("undefined_name\n")
    assert "undefined_name" in caught.value.traceback
    assert "importlib" not in caught.value.traceback


PRINTS = """
import sys

def custom_model():
    numbers = keras.Input((5,), name="numbers")
    return keras.Model({"numbers": numbers}, Printing(1)(numbers))

class Printing(layers.Dense):
    def call(self, inputs):
        tf.print("shown", tf.shape(inputs)[0], summarize=-1)
        return super().call(inputs)

def loss(labels, predictions):
    tf.print("kept in the log", output_stream=sys.stderr)
    return tf.reduce_mean(tf.square(labels - predictions))

def feed_batch(records, mode, metadata):
    return {"numbers": records["numbers"]}, records["label"]
"""


def test_what_the_model_prints_while_it_runs_goes_where_print_goes(
    write_module: WriteModule, capfd: pytest.CaptureFixture[str]
) -> None:
    runner, batch = runner_of(write_module(PRINTS), columns())
    capfd.readouterr()
    assert runner.ids(batch) == {}
    runner.train(batch, runner.initial_dense(), {}, step_seed=1)
    printed = capfd.readouterr()
    assert printed.out.splitlines() == ["shown 16"]
    assert printed.err.splitlines() == ["kept in the log"]


def test_an_error_of_tensorflow_is_shown_without_its_names_of_operations(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as raised, user_code(tmp_path / "model.py", "loss()"):
        tf.zeros(2) + tf.zeros((3, 7))
    assert str(raised.value) == "loss() of model.py raised InvalidArgumentError: Incompatible shapes: [2] vs. [3,7]"


def test_an_error_of_keras_is_shown_without_its_colours(tmp_path: Path) -> None:
    inputs = keras.Input((3,))
    with pytest.raises(UserCodeError) as raised, user_code(tmp_path / "model.py", "custom_model()"):
        keras.layers.Lambda(lambda x: x * MISSING)(inputs)  # type: ignore[name-defined]  # noqa: F821
    assert "Lambda.call()" in raised.value.traceback
    assert "\x1b" not in raised.value.traceback + str(raised.value)


def test_a_model_at_the_top_level_is_made_again_for_each_call(write_module: WriteModule) -> None:
    module = write_module("model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])\ndef custom_model(): ...\n")
    module = replace(module, file=replace(module.file, symbol="model"))
    first = module.make_model()
    first.set_weights([np.full((2, 1), 7.0), np.ones(1)])
    second = module.make_model()
    assert second is not first
    assert 7.0 not in second.get_weights()[0]
    with pytest.raises(UserError, match="model is a model, so it takes no --model_params"):
        replace(module, params={"units": 3}).make_model()


MODEL_ELSEWHERE = """
import keras
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("adam", loss="mse")
"""


@pytest.mark.parametrize("exported", ["", "from .net import model\n"])
@pytest.mark.parametrize(
    "source",
    [
        "from models_of_mine.net import model",
        "import models_of_mine.net\nmodel = models_of_mine.net.model",
        "from models_of_mine import net\nmodel = net.model",
        "from models_of_mine.others import model",
    ],
)
def test_a_model_that_another_module_has_compiled_is_made_again_for_each_call(
    tmp_path: Path, source: str, exported: str
) -> None:
    package = tmp_path / "models_of_mine"
    package.mkdir()
    (package / "net.py").write_text(MODEL_ELSEWHERE)
    (package / "__init__.py").write_text(exported)
    (package / "others.py").write_text("from models_of_mine.net import model\n")
    path = tmp_path / "job.py"
    path.write_text(source)
    file = resolve(str(path), (tmp_path,))
    assert file.symbol == "model"
    check_syntax(file)
    module = load(file)
    try:
        first = module.make_model()
        first.set_weights([np.full((2, 1), 7.0), np.ones(1)])
        second = module.make_model()
        assert second is not first
        assert 7.0 not in second.get_weights()[0]
        assert module.completed_by(second).has_loss
    finally:
        for name in [name for name in sys.modules if name.startswith("models_of_mine")]:
            del sys.modules[name]


def test_a_module_that_always_gives_the_same_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(
        "import sys, keras\n"
        "if not hasattr(sys, 'model_of_test'):\n"
        "    sys.model_of_test = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])\n"
        "    sys.model_of_test.compile('adam', loss='mse')\n"
        "model = sys.model_of_test\n"
    )
    try:
        with pytest.raises(UserError, match=r"(?s)job.py gives the same model each .*Define a function"):
            load(resolve(str(path), (tmp_path,))).make_model()
    finally:
        del sys.model_of_test  # type: ignore[attr-defined]


def test_a_model_of_an_installed_package_is_refused_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "models_of_a_package.py").write_text(MODEL_ELSEWHERE)
    monkeypatch.syspath_prepend(installed)
    path = tmp_path / "job.py"
    path.write_text("from models_of_a_package import model\n")
    try:
        with pytest.raises(
            UserError, match=r"(?s)made by models_of_a_package, which is an installed package and is not"
        ):
            load(resolve(str(path), (tmp_path,))).make_model()
    finally:
        del sys.modules["models_of_a_package"]


def test_flags_name_other_functions_than_those_of_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        HEADER
        + """
def custom_model(): return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
def loss(labels, predictions): raise AssertionError
def half(labels, predictions): return 0.5
def slow(): return keras.optimizers.SGD(0.125)
def counts(): return {"n": keras.metrics.Mean()}
def feed_batch(records, mode, metadata): raise AssertionError
def lines(dataset, mode, metadata): return dataset
rate = 3
"""
    )
    names = {"loss": "half", "optimizer": "slow", "eval_metrics_fn": "counts", "feed": "lines"}
    module = load(ModelFile(path=path, functions=names))
    assert module.required("loss")(0, 0) == 0.5
    assert module.value("loss") is module.module.half
    assert float(module.make_optimizer().learning_rate) == 0.125
    assert [*module.make_metrics("eval_metrics_fn")] == ["n"]
    assert module.function("feed") is module.module.lines
    assert module.function("feed_batch") is None
    with pytest.raises(UserError, match=r"--optimizer=fast: .* defines no such function"):
        load(ModelFile(path=path, functions={"optimizer": "fast"}))
    with pytest.raises(UserError, match="'rate' must be a function"):
        load(ModelFile(path=path, functions={"optimizer": "rate"}))


def test_a_file_loads_the_same_model_before_and_after_it_is_known_to_be_compiled(
    write_module: WriteModule, tmp_path: Path
) -> None:
    compiled = """
    del loss, optimizer

    def custom_model():
        inputs = keras.Input((2,))
        model = keras.Model(inputs, {"y": layers.Dense(1)(inputs)})
        model.compile("sgd", loss={"y": "mse"})
        return model
    """
    module = write_module(compiled)
    module.make_model().save(tmp_path / "model.keras")
    module = replace(module, exported=tmp_path / "model.keras")
    model = module.make_model()
    again = module.completed_by(model).make_model()
    assert dict(model.loss) == dict(again.loss) == {"y": "mse"}


NUMBERS = {name: columns()[name] for name in ("numbers", "label")}
PLAIN = """
del loss, optimizer
loss = "mse"
optimizer = keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.9))
callbacks = [keras.callbacks.EarlyStopping("loss")]

def custom_model():
    numbers = keras.Input((5,), name="numbers")
    return keras.Model({"numbers": numbers}, layers.Dense(1)(numbers))
"""
COMPILED = """
del optimizer
loss = "a text of the file's own"
optimizer = 3
numbers = keras.Input((5,), name="numbers")
model = keras.Model({"numbers": numbers}, layers.Dense(1)(numbers))
model.compile(keras.optimizers.SGD(0.25), "mse")
"""


def test_plain_values_stand_for_functions(write_module: WriteModule) -> None:
    module = write_module(PLAIN)
    runner, batch = runner_of(module, NUMBERS)
    assert runner.optimizer.optimizer.schedule == "ExponentialDecay"
    assert runner.train(batch, runner.initial_dense(), step_seed=1).finite
    callbacks = module.function("callbacks")
    assert callbacks is not None
    (one,), (other,) = callbacks(), callbacks()
    assert type(one) is keras.callbacks.EarlyStopping
    assert one is not other
    with pytest.raises(UserError, match="loss = 'mistaken', which Keras does not know"):
        runner_of(write_module(PLAIN.replace("mse", "mistaken"), name="other"), NUMBERS)


def test_plain_values_beside_a_compiled_model_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "compiled.py"
    path.write_text(HEADER + COMPILED)
    runner, _ = runner_of(load(ModelFile(path=path, symbol="model")), NUMBERS)
    assert runner.optimizer.optimizer.learning_rate == 0.25


@pytest.mark.parametrize("call", ["evaluate(None)", "fit(None)", "train_on_batch(None)"])
def test_a_file_that_trains_at_its_top_level_is_refused_with_its_line(tmp_path: Path, call: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        HEADER + f"net = keras.Sequential([layers.Dense(1)])\nnet.compile('sgd', 'mse')\nif net:\n    net.{call}\n"
    )
    line = path.read_text().count("\n")
    with pytest.raises(
        UserError, match=rf"script.py, line {line} calls {call[:3]}.*model file only makes the model"
    ) as told:
        load(ModelFile(path=path, symbol="net"))
    assert f"elasticdl run {path}" in str(told.value)
