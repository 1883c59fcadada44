"""A compiled Keras model needs no functions ``loss`` and ``optimizer``; loss and metrics are those of ``evaluate``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.metric_states import sum_states
from elasticdl.worker.model.runner import ModelRunner
from elasticdl.worker.model.user.compiled import Compiled
from elasticdl.worker.model.user.feeder import BatchFeeder

from .conftest import WriteModule, fed, runner_of

pytestmark = pytest.mark.tensorflow

MODEL = """
del loss, optimizer

@keras.saving.register_keras_serializable()
class Error(keras.metrics.Mean):
    def __init__(self, scale=1.0, **options):
        super().__init__(**options)
        self.scale = scale

    def update_state(self, labels, predictions, sample_weight=None):
        super().update_state(self.scale * ops.abs(labels - predictions), sample_weight)

    def get_config(self):
        return {**super().get_config(), "scale": self.scale}

class Shares(Error):
    def result(self):
        return {"share": super().result(), "more": {"rest": 1.0 - super().result()}}

def closeness(labels, predictions):
    return ops.exp(-ops.abs(labels - predictions))

def own_loss(labels, predictions):
    return ops.mean(ops.square(labels - predictions), axis=-1)
"""
ONE = """
def custom_model():
    inputs = keras.Input((4,), name="numbers")
    x = layers.Dense(3, activation="relu", kernel_regularizer="l2")(inputs)
    model = keras.Model({"numbers": inputs}, layers.Dense(1, activation="sigmoid", name="out")(x))
    if OPTIONS:
        model.compile(**OPTIONS)
    return model

def feed_batch(records, mode, metadata):
    return {"numbers": records["numbers"]}, records["label"]
"""
TWO = """
def custom_model():
    inputs = keras.Input((4,), name="numbers")
    x = layers.Dense(3, activation="relu")(inputs)
    outputs = OUTPUTS(layers.Dense(1, name="value")(x), layers.Dense(3, activation="softmax", name="kind")(x))
    model = keras.Model({"numbers": inputs}, outputs)
    model.compile(**OPTIONS)
    return model

def feed_batch(records, mode, metadata):
    return {"numbers": records["numbers"]}, OUTPUTS(records["label"], records["kind"])
"""
AS_DICT = "OUTPUTS = lambda value, kind: {'value': value, 'kind': kind}\n"
AS_LIST = "OUTPUTS = lambda *outputs: list(outputs)\n"
WEIGHTED = """
def feed_batch(records, mode, metadata):
    return {"numbers": records["numbers"]}, records["label"], records["weight"]
"""
LABELS = """
def feed_batch(records, mode, metadata):
    return {{"numbers": records["numbers"]}}, {}
"""
CASES = {
    "names": ONE + "OPTIONS = dict(optimizer='adam', loss='binary_crossentropy', metrics=['accuracy', 'mae'])",
    "objects": ONE + "OPTIONS = dict(loss=keras.losses.Huber(), metrics=[Error(2.0, name='e'), keras.metrics.AUC()])",
    "functions": ONE + "OPTIONS = dict(loss=own_loss, metrics=[closeness])",
    "weights": ONE + WEIGHTED + "OPTIONS = dict(loss='mse', metrics=['mae'], weighted_metrics=['accuracy', Error()])",
    "dict": TWO + AS_DICT + "OPTIONS = dict(loss={'value': 'mse', 'kind': 'sparse_categorical_crossentropy'}, "
    "loss_weights={'value': 0.3, 'kind': 2.0}, metrics={'kind': ['accuracy'], 'value': ['mae']})",
    "list": TWO
    + AS_LIST
    + "OPTIONS = dict(loss=['mae', 'sparse_categorical_crossentropy'], metrics=[['mse'], 'accuracy'])",
    "dict of results": ONE + "OPTIONS = dict(loss='mse', metrics=[Shares(name='pr'), 'mae'])",
    "dict of results of an output": TWO
    + AS_DICT
    + "OPTIONS = dict(loss={'value': 'mse', 'kind': 'sparse_categorical_crossentropy'}, metrics={'value': [Shares()]})",
    "no label for an output without a loss": TWO
    + AS_LIST
    + LABELS.format("records['label']")
    + "OPTIONS = dict(loss=['mse', None])",
    "labels for two of three outputs": TWO.replace("outputs)", "[*outputs, x])")
    + AS_LIST
    + LABELS.format("[records['label'], records['kind']]")
    + "OPTIONS = dict(loss=['mse', 'sparse_categorical_crossentropy', None], loss_weights=[0.5, 2.0, None])",
    "no metrics": ONE + "OPTIONS = dict(loss='mse')",
}


def raw_columns(count: int = 24) -> dict[str, Any]:
    random = np.random.default_rng(1)
    return {
        "numbers": random.normal(size=(count, 4)).astype(np.float32),
        "label": random.integers(0, 2, (count, 1)).astype(np.float32),
        "kind": random.integers(0, 3, (count, 1)),
        "weight": random.uniform(0.5, 2.0, count).astype(np.float32),
    }


@pytest.mark.parametrize("case", CASES)
def test_loss_and_metrics_are_those_of_keras(write_module: WriteModule, case: str) -> None:
    module = write_module(MODEL + CASES[case])
    raw = raw_columns()
    runner, batch = runner_of(module, raw)
    states = []
    for part in (slice(0, 9), slice(9, 24)):
        some = BatchFeeder(module, "evaluate", None).feed({name: column[part] for name, column in raw.items()})
        assert some is not None
        runner.reset_metrics()
        runner.evaluate(some, runner.initial_dense())
        states.append(runner.metric_states())
    merged = runner.merge(sum_states(states))

    model = runner.built.model
    everything: Any = batch
    arguments = (everything.features, everything.labels, everything.weights)
    expected = model.test_on_batch(*arguments, return_dict=True)
    assert merged == pytest.approx(expected, rel=1e-5)

    result = runner.train(batch, runner.initial_dense(), step_seed=1)
    with tf.GradientTape() as tape:
        loss = model.compute_loss(
            everything.features, everything.labels, model(everything.features, training=True), everything.weights
        )
    weights = [variable.value for variable in model.trainable_variables]
    gradients = tape.gradient(loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert result.loss == pytest.approx(float(loss), rel=1e-5)
    flat = np.concatenate([np.asarray(gradient).ravel() for gradient in gradients])
    np.testing.assert_allclose(np.sort(result.dense_gradient), np.sort(flat), atol=1e-6)


def test_the_optimizer_is_that_of_compile(write_module: WriteModule) -> None:
    runner, _ = runner_of(
        write_module(MODEL + ONE + "OPTIONS = dict(optimizer=keras.optimizers.SGD(0.3), loss='mse')"), raw_columns()
    )
    assert runner.rate(0) == pytest.approx(0.3)


def test_functions_of_the_file_come_first(write_module: WriteModule) -> None:
    body = ONE + "OPTIONS = dict(optimizer='adam', loss='mae', metrics=['accuracy'])\n"
    functions = """
def eval_metrics_fn():
    return {"error": closeness}

def loss(labels, predictions):
    return own_loss(labels, predictions)
"""
    runner, batch = runner_of(write_module(MODEL + body + functions), raw_columns())
    assert runner.metric_names == ("loss", "error")
    predictions = runner.built.model(batch.features)
    plain = np.mean(np.square(np.asarray(batch.labels) - np.asarray(predictions)))
    regularizer = sum(float(loss) for loss in runner.built.model.losses)
    assert runner.evaluate(batch, runner.initial_dense()) == pytest.approx(plain + regularizer, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("OPTIONS = dict(optimizer='adam')", "the model is compiled without a loss"),
        ("OPTIONS = dict(loss='mse', metrics=[Unmade(3)])", r"metric 'unmade' can't be made again from its get_config"),
        ("OPTIONS = dict(loss='mse', metrics=['no_such'])", "metrics of compile.. of .* raised ValueError: .*no_such"),
        ("OPTIONS = dict(loss='no_such')", "loss of compile.. of .* raised ValueError: .*no_such"),
        ("OPTIONS = {}", "defines no 'loss', and the model is not"),
    ],
)
def test_what_is_refused(write_module: WriteModule, options: str, message: str) -> None:
    unmade = """
class Unmade(keras.metrics.Mean):
    def __init__(self, needed, name="unmade"):
        super().__init__(name=name)
        self.needed = (number for number in range(needed))

    def get_config(self):
        return {}
"""
    module = write_module(MODEL + unmade + ONE + options)
    batch = fed(module, raw_columns())
    with pytest.raises(UserError, match=message):
        ModelRunner(module, batch)


def test_what_layers_add_may_be_the_whole_loss(write_module: WriteModule) -> None:
    adding = """
class Adding(layers.Layer):
    def call(self, inputs, outputs):
        self.add_loss(ops.mean(ops.square(inputs - outputs)))
        return outputs

def custom_model():
    inputs = keras.Input((4,), name="numbers")
    model = keras.Model({"numbers": inputs}, Adding()(inputs, layers.Dense(4, kernel_regularizer="l2")(inputs)))
    model.compile("adam")
    return model

def feed_batch(records, mode, metadata):
    return {"numbers": records["numbers"]}, records["label"]
"""
    module = write_module(MODEL + adding)
    batch = fed(module, raw_columns())
    runner = ModelRunner(module, batch)
    model = runner.built.model
    numbers = np.asarray(batch.features["numbers"])
    kernel, bias = model.get_weights()
    expected = np.mean((numbers - (numbers @ kernel + bias)) ** 2) + 0.01 * np.sum(kernel**2)
    assert runner.evaluate(batch, runner.initial_dense()) == pytest.approx(expected, rel=1e-5)
    result = runner.train(batch, runner.initial_dense(), step_seed=1)
    assert result.loss == pytest.approx(expected, rel=1e-5) and np.any(result.dense_gradient)


@pytest.mark.parametrize(
    ("options", "unlabelled"),
    [
        ("loss='mse'", set()),
        ("loss=['mse', None]", {"kind"}),
        ("loss={'value': 'mse', 'kind': None}", {"kind"}),
        ("loss=['mse', None], metrics=[None, ['mae']]", set()),
        ("loss=['mse', None], metrics=[['mae'], None]", {"kind"}),
        ("loss=[None, 'mse'], weighted_metrics={'value': ['mae']}", set()),
        ("loss=[None, 'mse']", {"value"}),
    ],
)
def test_outputs_without_a_loss_or_a_metric_need_no_label(
    write_module: WriteModule, options: str, unlabelled: set[str]
) -> None:
    module = write_module(MODEL + TWO + AS_LIST + f"OPTIONS = dict({options})")
    assert Compiled(module.make_model(), module.path).unlabelled(("value", "kind")) == unlabelled


@pytest.mark.parametrize("gives", ["numbers", "(numbers,)", "(numbers, None)"])
def test_a_feed_gives_no_labels_to_a_model_whose_layers_add_the_loss(write_module: WriteModule, gives: str) -> None:
    adding = f"""
class Adding(layers.Layer):
    def call(self, inputs, outputs):
        self.add_loss(ops.mean(ops.square(inputs - outputs)))
        return outputs

def custom_model():
    inputs = keras.Input((4,), name="numbers")
    model = keras.Model({{"numbers": inputs}}, Adding()(inputs, layers.Dense(4)(inputs)))
    model.compile("adam")
    return model

def feed_batch(records, mode, metadata):
    numbers = {{"numbers": records["numbers"]}}
    return {gives}
"""
    module = write_module(MODEL + adding)
    batch = fed(module, raw_columns())
    runner = ModelRunner(module, batch)
    result = runner.train(batch, runner.initial_dense(), step_seed=1)
    assert result.loss == pytest.approx(runner.evaluate(batch, runner.initial_dense()), rel=1e-5)
    assert result.loss > 0 and np.any(result.dense_gradient)


def test_a_feed_that_gives_no_labels_to_a_loss_is_refused(write_module: WriteModule) -> None:
    feed = "\ndef feed_batch(records, mode, metadata):\n    return {'numbers': records['numbers']}\n"
    compiled = """
def custom_model():
    inputs = keras.Input((4,), name="numbers")
    model = keras.Model({"numbers": inputs}, layers.Dense(1)(inputs))
    model.compile("adam", loss="mse")
    return model
"""
    module = write_module(MODEL + compiled + feed)
    with pytest.raises(UserError, match="the feed gives no labels, and the loss of the model needs them"):
        ModelRunner(module, fed(module, raw_columns()))
