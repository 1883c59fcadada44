"""Models of scripts, taken apart and put together again: what they predict, their names and their compile() stay."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from elasticdl.shared.errors import UserError
from elasticdl.shipping.pickling import copied, dumps, loads

pytestmark = pytest.mark.tensorflow
FOLDER = Path(__file__).parent
X = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


class Scaled(keras.layers.Layer):  # type: ignore[misc]
    """A layer as scripts have it: without get_config(), with a function and a list of layers as attributes."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.parts = [keras.layers.Dense(4), keras.layers.Dropout(0.1)]

    def call(self, inputs: Any) -> Any:
        for part in self.parts:
            inputs = part(inputs)
        return self.function(inputs)


class Net(keras.Model):  # type: ignore[misc]
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.scaled = Scaled(lambda inputs: inputs * factor)
        self.encoder = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.BatchNormalization()])
        self.head = keras.layers.Dense(1)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.head(self.encoder(self.scaled(inputs, training=training), training=training))


def functional() -> Any:
    inputs = keras.Input((4,))
    shared = keras.layers.Dense(4, name="shared")
    hidden = Scaled(keras.ops.tanh)(shared(shared(inputs)))
    return keras.Model(inputs, keras.layers.Dense(1)(hidden) * 2 + hidden[:, :1])


def with_submodel() -> Any:
    inner = functional()
    inputs = keras.Input((4,), name="outer")
    return keras.Model(inputs, inner(inputs) + inner(inputs * 2))


def preprocessing() -> Any:
    """Of layers that hold a ``DynamicBackend`` of Keras."""
    normalization = keras.layers.Normalization()
    normalization.adapt(X)
    layers = [keras.Input((4,)), normalization, keras.layers.Rescaling(2.0), keras.layers.Reshape((2, 2, 1))]
    layers += [keras.layers.RandomFlip(seed=1), keras.layers.Flatten(), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def not_yet_built() -> Any:
    return keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])


def loss(labels: Any, predictions: Any) -> Any:
    return keras.ops.mean((labels - predictions) ** 2)


@pytest.mark.parametrize("make", [functional, with_submodel, preprocessing, not_yet_built, lambda: Net(3.0)])
def test_a_model_is_the_same_in_another_process(make: Callable[[], Any]) -> None:
    model = make()
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model.compile(keras.optimizers.AdamW(rate, weight_decay=0.1), loss=loss, metrics=["mae"])
    expected = model.evaluate(X, Y, verbose=0, return_dict=True)
    predicted = model.predict(X, verbose=0)
    loads(dumps(model, FOLDER, "the model"))
    made = loads(dumps(model, FOLDER, "the model"))
    np.testing.assert_allclose(made.predict(X, verbose=0), predicted, rtol=1e-6)
    assert made.evaluate(X, Y, verbose=0, return_dict=True) == pytest.approx(expected)
    assert [one.path for one in made.weights] == [one.path for one in model.weights]
    assert [one.value.name for one in made.weights] == [one.value.name for one in model.weights]
    assert float(made.optimizer.weight_decay) == pytest.approx(0.1)
    made.fit(X, Y, verbose=0)
    assert [one.name for one in made.metrics] == [one.name for one in model.metrics]


def test_layers_that_two_parts_share_are_shared_again() -> None:
    inner = functional()
    outer = keras.Sequential([keras.Input((4,)), inner.get_layer("shared"), keras.layers.Dense(1)])
    one, other = loads(dumps([inner, outer], FOLDER, "both"))
    assert other.layers[0] is one.get_layer("shared")


def test_a_metric_without_get_config_is_copied_with_its_function() -> None:
    class Off(keras.metrics.Metric):  # type: ignore[misc]
        def __init__(self, by: float) -> None:
            super().__init__(name="off")
            self.by, self.total = by, self.add_weight(name="total", initializer="zeros")

        def update_state(self, labels: Any, predictions: Any, sample_weight: Any = None) -> None:
            self.total.assign_add(keras.ops.sum(predictions - labels) + self.by)

        def result(self) -> Any:
            return self.total

    made = copied(Off(2.0))
    made.update_state(np.zeros(3), np.ones(3))
    assert float(made.result()) == 5.0


def test_mixed_precision_and_bfloat16_variables_keep_their_types() -> None:
    layer = keras.layers.Dense(2, dtype="mixed_bfloat16")
    layer.build((None, 3))
    made = loads(dumps([layer, keras.Variable(np.ones(2), dtype="bfloat16")], FOLDER, "both"))
    assert made[0].dtype_policy.name == "mixed_bfloat16"
    assert made[1].dtype == "bfloat16"


def test_what_can_not_travel_is_named() -> None:
    model = not_yet_built()
    model.file = threading.current_thread()
    with pytest.raises(UserError, match="the model 'seq' can't be sent to the workers"):
        dumps(model, FOLDER, "the model 'seq'")


def test_layers_with_vocabularies_keep_them() -> None:
    words = keras.layers.TextVectorization(output_mode="int", output_sequence_length=4)
    words.adapt(np.array(["a b c", "b c", "c"]))
    colours = keras.layers.StringLookup(vocabulary=["red", "blue"])
    text, colour = keras.Input((), dtype="string"), keras.Input((), dtype="string")
    model = keras.Model([text, colour], [words(text), colours(colour)])
    made = loads(dumps(model, FOLDER, "the model"))
    assert [layer.path for layer in made.layers] == [layer.path for layer in model.layers]  # They need no first call.
    given = [keras.ops.convert_to_tensor(np.array(one)) for one in (["c b x", "a"], ["blue", "green"])]
    for expected, found in zip(model(given), made(given), strict=True):
        assert np.array(expected).tolist() == np.array(found).tolist()


def test_a_model_of_a_distribution_strategy_travels_as_any_other() -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.BatchNormalization()])
        model.compile("adam", "mse", metrics=["mae"])
    made = loads(dumps(model, FOLDER, "the model"))
    for found, expected in zip(made.get_weights(), model.get_weights(), strict=True):
        assert found.tolist() == expected.tolist()
    made.train_on_batch(np.ones((4, 3)), np.ones((4, 2)))


def test_functions_of_a_text_vectorization_travel_by_value() -> None:
    def shouted(text: Any) -> Any:
        return tf.strings.upper(text)

    words = keras.layers.TextVectorization(
        standardize=shouted, split=lambda text: tf.strings.split(text, "-"), output_sequence_length=3
    )
    words.adapt(["a-b", "b-c-b"])
    again = loads(dumps(words, Path("/nowhere"), "words"))
    assert again(["b-a"]).numpy().tolist() == words(["b-a"]).numpy().tolist()
    assert again.get_vocabulary() == ["", "[UNK]", "B", "C", "A"]
    assert words._standardize is shouted


def test_the_paths_of_lookups_do_not_depend_on_calls() -> None:
    text = keras.Input((1,), dtype="string", name="text")
    ids = keras.layers.StringLookup(vocabulary=["a", "b"])(text)
    model = keras.Model(text, keras.layers.CategoryEncoding(3, output_mode="one_hot")(ids))
    found = copied(model)
    before = [layer.path for layer in found._flatten_layers()]
    assert before == [layer.path for layer in model._flatten_layers()]
    outputs = found(tf.constant([["b"], ["?"]]))
    assert np.array(outputs).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert before == [layer.path for layer in found._flatten_layers()]


class Shows(keras.callbacks.Callback):  # type: ignore[misc]
    """Holds a dataset, as callbacks do that print a few predictions at the end of an epoch."""

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self.dataset = dataset


@pytest.mark.parametrize("kind", ["pairs", "dict", "texts", "last batch is smaller"])
def test_a_dataset_that_a_callback_holds_travels_with_its_elements(kind: str) -> None:
    made = {
        "pairs": tf.data.Dataset.from_tensor_slices((X, Y)).batch(4),
        "dict": tf.data.Dataset.from_tensor_slices(({"a": X, "b": Y}, Y)).batch(4),
        "texts": tf.data.Dataset.from_tensor_slices(["ü", "b", ""]),
        "last batch is smaller": tf.data.Dataset.from_tensor_slices(X).batch(5).cache().prefetch(2),
    }[kind]
    loaded = loads(dumps(Shows(made), FOLDER, "the callbacks")).dataset
    assert loaded.element_spec == made.element_spec
    assert int(loaded.cardinality()) == int(made.cardinality())
    for one, other in zip(made, loaded, strict=True):
        tf.nest.map_structure(lambda a, b: np.testing.assert_array_equal(a.numpy(), b.numpy()), one, other)
    assert len(list(loaded.take(1))) == 1


def test_a_dataset_without_an_end_and_an_iterator_are_refused_by_name() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(X)
    with pytest.raises(UserError, match=r"a tf\.data\.Dataset that a callback or the model refers to .* has no end"):
        dumps(Shows(dataset.repeat()), FOLDER, "the callbacks")
    with pytest.raises(UserError, match="the callbacks can't be sent to the workers"):
        dumps(Shows(iter(dataset)), FOLDER, "the callbacks")
