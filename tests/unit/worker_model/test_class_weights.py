"""``class_weight`` in a model file trains as ``fit(class_weight=...)`` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.model.user.class_weights import ClassWeights
from elasticdl.worker.model.user.feeder import BatchFeeder

from .conftest import WriteModule, fed, runner_of

pytestmark = pytest.mark.tensorflow

PATH = Path("net.py")
MODEL = """
del loss, optimizer

def custom_model():
    inputs = keras.Input((4,), name="numbers")
    model = keras.Model({"numbers": inputs}, layers.Dense(CLASSES, activation="softmax")(inputs))
    model.compile(keras.optimizers.SGD(1.0), loss=LOSS, weighted_metrics=["accuracy"])
    return model

def feed_batch(records, mode, metadata):
    labels = records["kind"]
    return {"numbers": records["numbers"]}, tf.one_hot(labels[:, 0], CLASSES) if HOT else labels
"""
WEIGHTS = {0: 0.3, 2: 7.5}
CASES = {
    "classes": "CLASSES, HOT, LOSS = 3, False, 'sparse_categorical_crossentropy'",
    "one-hot": "CLASSES, HOT, LOSS = 3, True, 'categorical_crossentropy'",
}


def raw_columns(count: int = 24) -> dict[str, Any]:
    random = np.random.default_rng(1)
    return {
        "numbers": random.normal(size=(count, 4)).astype(np.float32),
        "kind": random.integers(0, 3, (count, 1)),
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("given", [f"class_weight = {WEIGHTS}", f"def class_weight():\n    return {WEIGHTS}"])
def test_a_step_is_that_of_fit(write_module: WriteModule, case: str, given: str) -> None:
    runner, batch = runner_of(write_module(f"{CASES[case]}\n{MODEL}\n{given}\n"), raw_columns())
    result = runner.train(batch, runner.initial_dense(), step_seed=1)
    before = runner.initial_dense()

    model = runner.module.make_model()
    model.set_weights(_unpacked(before))
    arguments: Any = batch
    history = model.fit(
        arguments.features, arguments.labels, batch_size=24, shuffle=False, class_weight=WEIGHTS, verbose=0
    ).history
    assert result.loss == history["loss"][0]
    for found, expected in zip(_unpacked(before - result.dense_gradient), model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert runner.merge(runner.split_states(result.metric_states))["accuracy"] == pytest.approx(history["accuracy"][0])

    evaluated = BatchFeeder(runner.module, "evaluate", None).feed(raw_columns())
    assert evaluated is not None and evaluated.weights is None


def _unpacked(dense: Any) -> list[Any]:
    """Kernel and bias of the model."""
    return [dense[:12].reshape(4, 3), dense[12:]]


@given(
    labels=st.one_of(
        st.lists(st.integers(-2, 5), min_size=1, max_size=9).map(lambda values: np.array(values)),
        st.lists(st.floats(-2, 5, width=32), min_size=1, max_size=9).map(lambda values: np.array(values, np.float32)),
        st.lists(st.integers(0, 5), min_size=1, max_size=9).map(lambda values: np.array(values)[:, None]),
        st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 3), min_size=1, max_size=9).map(
            lambda values: np.array(values, np.float32)
        ),
    ),
    weights=st.dictionaries(st.integers(-2, 5), st.floats(0, 9), min_size=1),
)
def test_the_weight_of_a_record_is_that_of_keras(labels: Any, weights: dict[int, float]) -> None:
    found = ClassWeights(weights, PATH).sample_weights(tf.constant(labels))
    assert found.numpy().tolist() == class_weight_to_sample_weights(labels, weights).tolist()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("[1.0, 5.0]", "class_weight is of type list"),
        ("{'a': 1.0}", "class_weight has the class 'a', which is no integer"),
        ("{True: 1.0}", "class_weight has the class True, which is no integer"),
        ("{0: 'much'}", "class_weight gives class 0 the weight 'much'"),
        ("{0: float('nan')}", "class_weight gives class 0 the weight nan"),
    ],
)
def test_wrong_weights_are_refused(write_module: WriteModule, weights: str, message: str) -> None:
    module = write_module(f"{CASES['classes']}\n{MODEL}\nclass_weight = {weights}\n")
    with pytest.raises(UserError, match=message):
        BatchFeeder(module, "train", None)


def test_no_weights_are_no_weights(write_module: WriteModule) -> None:
    module = write_module(f"{CASES['classes']}\n{MODEL}\nclass_weight = {{}}\n")
    assert fed(module, raw_columns()).weights is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("{'a': records['kind'], 'b': records['kind']}", "class_weight needs a model with one output"),
        ("tf.as_string(records['kind'])", "class_weight needs labels that are classes, and they are string of shape"),
        ("tf.RaggedTensor.from_tensor(records['kind'])", "needs labels that are classes, and they are int64 of shape"),
        ("records['kind'][:, None]", "class_weight needs labels that are classes, and they are int64 of shape"),
        ("records['kind'], records['kind']", r"feed_batch\(\) gives sample weights, and the file defines class_weight"),
    ],
)
def test_labels_without_a_class_are_refused(write_module: WriteModule, labels: str, message: str) -> None:
    feed = f"def feed_batch(records, mode, metadata):\n    return records['numbers'], {labels}\n"
    module = write_module(f"{CASES['classes']}\n{MODEL}\n{feed}\nclass_weight = {WEIGHTS}\n")
    with pytest.raises(UserError, match=message):
        fed(module, raw_columns())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("labels, predictions", "class_weight gives sample weights, but loss takes two arguments"),
        ("labels, predictions, weights", "evaluations may have no sample weights, but loss needs them"),
    ],
)
def test_a_loss_has_to_take_what_it_is_given(write_module: WriteModule, parameters: str, message: str) -> None:
    loss = f"def loss({parameters}):\n    return 0.0\n"
    module = write_module(f"{CASES['classes']}\n{MODEL}\n{loss}\nclass_weight = {WEIGHTS}\n")
    with pytest.raises(UserError, match=message):
        runner_of(module, raw_columns())


def test_what_the_function_raises_is_the_users(write_module: WriteModule) -> None:
    module = write_module(f"{CASES['classes']}\n{MODEL}\ndef class_weight():\n    return 1 / 0\n")
    with pytest.raises(UserCodeError, match=r"class_weight\(\) of model.py raised ZeroDivisionError"):
        BatchFeeder(module, "train", None)
