"""Columns as inputs of a model, where the model file has no feed."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from elasticdl.shared.data.schema import Metadata
from elasticdl.shared.errors import UserError
from elasticdl.worker.model.user.column_choice import ColumnChoice, Constants
from elasticdl.worker.model.user.default_feed import DefaultFeed, Ports

PATH = Path("net.py")
COLUMNS = {
    "age": ("int64", tf.constant([40, 50], tf.int64)),
    "city": ("string", tf.constant(["Rome", "Bonn"])),
    "pixels": ("float64[3]", tf.constant([[1.0, 2, 3], [4, 5, 6]], tf.float64)),
    "items": ("list<int64>", tf.ragged.constant([[1, 2], [3]], dtype=tf.int64)),
    "left": ("float64", tf.constant([0.0, 1.0], tf.float64)),
}
RECORDS = {name: values for name, (_, values) in COLUMNS.items()}


def metadata(*names: str) -> Metadata:
    chosen = names or tuple(COLUMNS)
    return Metadata(format="csv", column_names=chosen, column_types=tuple(COLUMNS[name][0] for name in chosen))


def model_of(inputs: Any, outputs: int | tuple[str, ...] = 1) -> Ports:
    flat = [keras.layers.Flatten()(one) for one in keras.tree.flatten(inputs) if one.dtype != "string"]
    joined = keras.layers.Concatenate()([keras.ops.cast(one, "float32") for one in flat] or [keras.Input((1,))])
    if isinstance(outputs, int):
        made: Any = keras.layers.Dense(outputs)(joined)
    else:
        made = [keras.layers.Dense(1, name=name)(joined) for name in outputs]
    return ports_of(keras.Model(inputs, made))


def ports_of(
    model: Any, label: Any = None, features: Any = None, data: Metadata | None = None, *, has_labels: bool = True
) -> Ports:
    choice = ColumnChoice.of("", Constants(label, features), PATH)
    return Ports.of(model, data or metadata(), choice, PATH, has_labels=has_labels)


def feed(
    ports: Ports,
    mode: str = "train",
    label: str = "",
    data: Metadata | None = None,
    constants: tuple[Any, ...] = (),
) -> Any:
    """Features and labels; constants are what the file binds to label, features and sample_weight."""
    data = data or metadata()
    made = DefaultFeed(ports, data, mode, ColumnChoice.of(label, Constants(*constants), PATH), PATH)
    return made({name: RECORDS[name] for name in data.column_names}, mode, data)


def test_inputs_take_the_columns_of_their_names() -> None:
    age, pixels = keras.Input((1,), name="age"), keras.Input((3,), name="pixels")
    city, items = keras.Input((1,), name="city", dtype="string"), keras.Input((None,), name="items", dtype="int32")
    ports = Ports(inputs={"age": age, "city": city, "more": [pixels, items]}, outputs=age, output_names=("out",))
    features, labels = feed(ports)
    assert features["age"].dtype == tf.float32 and features["age"].numpy().tolist() == [[40], [50]]
    assert features["city"].numpy().tolist() == [[b"Rome"], [b"Bonn"]]
    np.testing.assert_array_equal(features["more"][0], RECORDS["pixels"])
    assert features["more"][1].dtype == tf.int32 and features["more"][1].numpy().tolist() == [[1, 2], [3, 0]]
    assert labels.dtype == tf.float32 and labels.numpy().tolist() == [[0], [1]], "the only column that is no input"
    assert set(feed(ports, "predict", data=metadata("age", "city", "pixels", "items"))) == {"age", "city", "more"}


def test_lists_that_are_all_empty_are_padded_to_one_step() -> None:
    items = keras.Input((None,), name="items", dtype="int32")
    steps = keras.layers.LSTM(4)(keras.layers.Embedding(5, 3, mask_zero=True)(items))
    model = keras.Model(items, keras.layers.Dense(1)(steps))
    data = metadata("items", "left")
    made = DefaultFeed(ports_of(model, data=data), data, "train", ColumnChoice.of("", Constants(), PATH), PATH)
    empty = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int64), [0, 0, 0])
    features, _ = made({"items": empty, "left": RECORDS["left"]}, "train", data)
    assert features.numpy().tolist() == [[0], [0]]
    np.testing.assert_allclose(model(features), model(tf.zeros([2, 3], tf.int32)), rtol=1e-6)


@pytest.mark.parametrize(("lists", "padded"), [([[1, 2], [3]], [[1, 2], [3, 0]]), ([[], []], [[0], [0]])])
def test_lists_are_padded_in_a_graph_as_they_are_outside(
    lists: Any, padded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[Any] = []
    monkeypatch.setattr(tf.get_logger(), "handlers", [handler := logging.NullHandler()])
    monkeypatch.setattr(handler, "handle", warnings.append)
    items = keras.Input((None,), name="items", dtype="int32")
    ports = Ports(inputs={"items": items}, outputs=items, output_names=("out",))
    data = metadata("items", "left")
    made = DefaultFeed(ports, data, "train", ColumnChoice.of("", Constants(None, None), PATH), PATH)

    def fed(values: Any) -> Any:
        return made({"items": values, "left": tf.zeros([2])}, "train", data)[0]["items"]

    lists_of_any_length = tf.RaggedTensorSpec((None, None), tf.int64, ragged_rank=1)
    traced = tf.function(fed, input_signature=[lists_of_any_length])
    assert traced(tf.ragged.constant(lists, dtype=tf.int64, ragged_rank=1)).numpy().tolist() == padded
    assert warnings == [], "AutoGraph warns about what it can't convert"


def test_the_only_input_may_take_all_columns_but_the_label() -> None:
    data = metadata("left", "age")
    ports = model_of(keras.Input((1,)))
    features, labels = feed(ports, label="left", data=data)
    assert features.numpy().tolist() == [[40], [50]] and labels.numpy().tolist() == [[0], [1]]
    two = model_of(keras.Input((2,)))
    assert feed(two, "predict", data=data).numpy().tolist() == [[0, 40], [1, 50]]
    with pytest.raises(UserError, match=r"its shape \(None, 2\) does not take 1 columns: age"):
        feed(two, label="left", data=data)


def test_several_outputs_take_the_columns_of_their_names_or_those_of_the_flag() -> None:
    inputs = keras.Input((3,), name="pixels")
    _, labels = feed(model_of(inputs, ("left", "age")))
    assert [one.numpy().ravel().tolist() for one in labels] == [[0, 1], [40, 50]]
    _, labels = feed(model_of(inputs, ("a", "b")), label="age, left")
    assert [one.numpy().ravel().tolist() for one in labels] == [[40, 50], [0, 1]]
    with pytest.raises(UserError, match="--label names 1 columns, and the model has 2 outputs: a, b"):
        feed(model_of(inputs, ("a", "b")), label="age")


def test_labels_of_one_output_with_several_values_stay_flat() -> None:
    _, labels = feed(model_of(keras.Input((3,), name="pixels"), 4), label="age")
    assert labels.dtype == tf.int64 and labels.shape == (2,)


def test_a_sequential_model_has_one_input() -> None:
    model = keras.Sequential([keras.Input((3,), name="pixels"), keras.layers.Dense(1)])
    features, _ = feed(ports_of(model), label="left")
    assert features.shape == (2, 3) and features.dtype == tf.float32


@pytest.mark.parametrize("model", [keras.Model(), keras.Sequential([keras.layers.Dense(1)])])
def test_a_model_without_input_layers_needs_a_feed(model: Any) -> None:
    with pytest.raises(
        UserError, match=r"net\.py defines neither feed\(\) nor feed_batch\(\), and its model has no keras"
    ):
        ports_of(model)


class Subclassed(keras.Model):  # type: ignore[misc]
    """A model that knows its inputs only when it is called."""

    def __init__(self, units: int = 1, key: str = "") -> None:
        super().__init__()
        self._dense = keras.layers.Dense(units)
        self._key = key

    def call(self, inputs: Any) -> Any:
        inputs = inputs[self._key] if self._key else inputs
        return self._dense(inputs if len(inputs.shape) > 1 else keras.ops.expand_dims(inputs, -1))


def test_a_subclassed_model_takes_all_columns_of_numbers_but_the_label() -> None:
    data = metadata("left", "age")
    ports = ports_of(Subclassed(), "left", data=data)
    features, labels = feed(ports, data=data, constants=("left", None))
    assert features.dtype == tf.float32 and features.numpy().tolist() == [[40], [50]]
    assert labels.numpy().tolist() == [[0], [1]], "like the output"
    named_so = replace(data, column_names=("left", "age", "features"), column_types=("int64",) * 3)
    assert ports_of(Subclassed(), "left", data=named_so).inputs.shape == (None, 2)


def test_a_subclassed_model_takes_the_columns_that_the_file_names() -> None:
    for chosen, expected in ((["age", "left"], [[40, 0], [50, 1]]), ("pixels", [[1, 2, 3], [4, 5, 6]])):
        features, _ = feed(ports_of(Subclassed(), features=chosen), constants=(None, chosen), label="age")
        assert features.numpy().tolist() == expected
    keyed = {"numbers": "pixels", "town": "city", "basket": "items"}
    features, _ = feed(ports_of(Subclassed(key="numbers"), features=keyed), constants=("age", keyed))
    assert features["numbers"].shape == (2, 3) and features["town"].numpy().tolist() == [b"Rome", b"Bonn"]
    assert features["basket"].numpy().tolist() == [[1, 2], [3, 0]], "padded"


def test_a_subclassed_model_may_take_a_column_of_matrices() -> None:
    data = Metadata(format="idx", column_names=("image", "label"), column_types=("uint8[28x20]", "uint8"))
    ports = ports_of(keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)]), "label", data=data)
    assert ports.inputs.shape == (None, 28, 20)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (None, r"gets its columns as one tensor of numbers, and column 'city' is string\n.* features = \{\"city\""),
        (["age", "items"], r"column 'items' is list<int64>"),
        (["age", "ages"], r"features in net\.py: 'ages' is no column of the data"),
        ({"town": "cities"}, r"features in net\.py: 'cities' is no column of the data"),
    ],
)
def test_columns_that_a_subclassed_model_cannot_take_are_named(features: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        feed(ports_of(Subclassed(), "left", features), constants=("left", features))


def test_the_keys_of_a_dict_of_outputs_name_the_labels() -> None:
    age = keras.Input((1,), name="age")
    model = keras.Model(age, {"left": keras.layers.Dense(1)(age), "city": keras.layers.Dense(2)(age)})
    assert ports_of(model).output_names == ("city", "left"), "in the order of keras.tree"
    _, labels = feed(ports_of(model), constants=(["age", "left"], None))
    assert {key: one.numpy().tolist() for key, one in labels.items()} == {"city": [40, 50], "left": [[0], [1]]}


def test_an_output_of_several_values_may_take_as_many_columns() -> None:
    ports = model_of(keras.Input((3,), name="pixels"), 2)
    _, labels = feed(ports, constants=(["age", "left"], None))
    assert labels.dtype == tf.float32 and labels.numpy().tolist() == [[40, 0], [50, 1]]


def test_a_model_without_a_loss_needs_no_label() -> None:
    data = metadata("left", "age")
    ports = ports_of(Subclassed(2), features=["left", "age"], data=data, has_labels=False)
    features, labels = feed(ports, data=data, constants=(None, ["left", "age"]))
    assert features.shape == (2, 2) and labels.numpy().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("names", "label", "message"),
    [
        (
            ("ages",),
            "",
            r"input 'ages' of the model is no column of the data\n  Did you mean 'age'\? Columns: age, city",
        ),
        (("pixels",), "lefd", r"--label: 'lefd' is no column of the data\n  Did you mean 'left'\?"),
        (
            ("pixels",),
            "",
            r'age, city, items, left\n  Give --label=COLUMN, or write label = "COLUMN" in the file',
        ),
        (("city",), "left", r"column 'city' is string, and its input of the model is float32\n .*--column_types=city="),
        (("items",), "left", r"column 'items' has values of shape \(None,\), and its input of the model takes \(3,\)"),
    ],
)
def test_what_does_not_fit_is_named_with_the_remedy(names: tuple[str, ...], label: str, message: str) -> None:
    other = keras.Input((1,), name="age")
    inputs = [keras.Input((3,), name=name) for name in names]
    ports = model_of([*inputs, other] if names == ("ages",) else inputs)
    with pytest.raises(UserError, match=message):
        feed(ports, label=label)


def test_a_column_that_contains_separators_suggests_the_flag() -> None:
    data = Metadata(format="csv", column_names=("age;left",), column_types=("string",))
    ports = model_of(keras.Input((1,), name="age"))
    with pytest.raises(UserError, match=r"If ';' separates the columns: --csv_delimiter=';'\. Columns: age;left"):
        DefaultFeed(ports, data, "train", ColumnChoice.of("left", Constants(None, None), PATH), PATH)


def test_what_it_takes_is_said() -> None:
    ports = model_of([keras.Input((3,), name="pixels"), keras.Input((1,), name="age")])
    choice = ColumnChoice(labels=("left",))
    trained, predicted = (DefaultFeed(ports, metadata(), mode, choice, PATH) for mode in ("train", "predict"))
    assert trained.describe() == "inputs of the model: pixels, age; label: left"
    assert predicted.describe() == "inputs of the model: pixels, age"


def test_tfrecord_has_no_columns() -> None:
    with pytest.raises(UserError, match="tfrecord data has no columns"):
        feed(model_of(keras.Input((3,), name="pixels")), data=Metadata(format="tfrecord"))


def test_the_file_names_the_label_and_the_flag_comes_first() -> None:
    ports = model_of(keras.Input((3,), name="pixels"))
    assert feed(ports, constants=("left", None))[1].numpy().tolist() == [[0], [1]]
    assert feed(ports, label="age", constants=("left", None))[1].numpy().tolist() == [[40], [50]]
    _, labels = feed(model_of(keras.Input((3,), name="pixels"), ("a", "b")), constants=(["age", "left"], None))
    assert [one.numpy().ravel().tolist() for one in labels] == [[40, 50], [0, 1]]
    assert feed(ports, "predict", data=metadata("pixels"), constants=("left", None)).shape == (2, 3)


def test_the_file_names_the_columns_of_the_only_input_and_their_order() -> None:
    features, labels = feed(model_of(keras.Input((2,))), constants=("left", ["age", "left"]), label="age")
    assert features.numpy().tolist() == [[40, 0], [50, 1]] and labels.numpy().tolist() == [[40], [50]]
    features, labels = feed(model_of(keras.Input((3,), name="age")), constants=("left", ("pixels",)))
    np.testing.assert_array_equal(features, RECORDS["pixels"])
    rest = metadata("left", "age", "city")
    features, labels = feed(model_of(keras.Input((1,))), constants=(None, "age"), data=metadata("left", "age"))
    assert features.numpy().tolist() == [[40], [50]] and labels.numpy().tolist() == [[0], [1]], "the only other column"
    with pytest.raises(UserError, match="it is not clear which column is the label: left, city"):
        feed(model_of(keras.Input((1,))), constants=(None, "age"), data=rest)


def test_several_inputs_take_the_columns_of_their_names_whatever_features_are() -> None:
    inputs = [keras.Input((3,), name="pixels"), keras.Input((1,), name="age")]
    features, _ = feed(model_of(inputs), constants=("left", ["age", "items"]))
    assert [one.shape for one in features] == [(2, 3), (2, 1)]


@pytest.mark.parametrize(
    ("label", "features", "message"),
    [
        ("lefd", None, r"label in net\.py: 'lefd' is no column of the data\n  Did you mean 'left'\?"),
        (["left", "age"], None, r"label in net\.py names 2 columns, and the model has 1 outputs"),
        (["left", 3], None, r"label in net\.py has 3 among the names of columns"),
        ("left", ["ages"], r"features in net\.py: 'ages' is no column of the data\n  Did you mean 'age'\?"),
        ("left", ["age", "left"], r"features has 2 columns, and input 'pixels' of the model has the shape \(None, 3\)"),
        ("left", ["age", None], r"features in net\.py has None among the names of columns"),
        ("left", "items", r"column 'items' has values of shape \(None,\), and its input of the model takes \(3,\)"),
    ],
)
def test_names_in_the_file_that_do_not_fit_are_refused(label: Any, features: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        feed(model_of(keras.Input((3,), name="pixels")), constants=(label, features))


def test_a_dict_of_this_name_is_nothing_to_a_model_with_input_layers() -> None:
    ports = model_of({"age": keras.Input((1,), name="age")})
    features, _ = feed(ports, label="left", constants=(None, {"age": "left"}))
    assert features["age"].numpy().tolist() == [[40], [50]]


@pytest.mark.parametrize("value", [None, 3, [], (), [1, 2], keras.Input((3,)), [keras.Input((3,))], {"age": 1}])
def test_other_things_of_these_names_are_the_users_own(value: Any) -> None:
    assert ColumnChoice.of("left", Constants(value, value, value), PATH) == ColumnChoice(
        labels=("left",), weights_from="sample_weight in net.py"
    )
    assert not ColumnChoice.of("", Constants(value, value, value), PATH).labels


def test_a_column_of_sample_weights_is_no_input_and_no_label() -> None:
    data = metadata("age", "pixels", "left")
    ports = model_of(keras.Input((3,), name="pixels"))
    features, labels, weights = feed(ports, data=data, constants=(None, None, "age"))
    assert features.shape == (2, 3) and labels.numpy().tolist() == [[0], [1]], "the only column that is left"
    assert weights.dtype == tf.float32 and weights.numpy().tolist() == [40, 50]
    stacked = model_of(keras.Input((1,)))
    features, _, weights = feed(stacked, label="left", data=metadata("age", "left"), constants=(None, ["age"], "left"))
    assert features.numpy().tolist() == [[40], [50]] and weights.numpy().tolist() == [0, 1]
    assert feed(ports, "predict", data=data, constants=(None, None, "age")).shape == (2, 3)


def test_evaluations_count_sample_weights_if_their_data_has_them() -> None:
    ports, constants = model_of(keras.Input((3,), name="pixels")), ("left", None, "age")
    assert len(feed(ports, "evaluate", data=metadata("age", "pixels", "left"), constants=constants)) == 3
    assert len(feed(ports, "evaluate", data=metadata("pixels", "left"), constants=constants)) == 2
    with pytest.raises(UserError, match=r"sample_weight in net.py: 'age' is no column of the data"):
        feed(ports, data=metadata("pixels", "left"), constants=constants)


def test_each_output_may_have_sample_weights_of_its_own() -> None:
    ports = model_of(keras.Input((3,), name="pixels"), ("left", "age"))
    for given in (["age", "left"], {"age": "left", "left": "age"}):
        _, _, weights = feed(ports, constants=(None, None, given))
        assert [one.numpy().tolist() for one in weights] == [[40, 50], [0, 1]]
    _, _, weights = feed(ports, constants=(None, None, "age"))
    assert weights.numpy().tolist() == [40, 50]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("city", "sample_weight in net.py: column 'city' is string, and sample weights are numbers"),
        ("pixels", r"column 'pixels' is float64\[3\], and sample weights are numbers"),
        ("agee", r"'agee' is no column of the data\n  Did you mean 'age'\?"),
        (["age", "left", "age"], "names age, left, age, and the model has the outputs a, b"),
        ({"a": "age"}, "names a, and the model has the outputs a, b"),
    ],
)
def test_wrong_sample_weights_are_refused(given: Any, message: str) -> None:
    ports = model_of(keras.Input((3,), name="pixels"), ("a", "b"))
    with pytest.raises(UserError, match=message):
        feed(ports, label="age,left", constants=(None, None, given))


def test_an_output_without_a_loss_needs_no_label() -> None:
    ports = replace(model_of(keras.Input((3,), name="pixels"), ("left", "other")), unlabelled=frozenset({"other"}))
    for label in ("", "left"):
        _, labels = feed(ports, label=label)
        assert [one.numpy().ravel().tolist() for one in labels] == [[0, 1], [0, 0]]
    _, labels = feed(ports, label="left,age")
    assert labels[1].numpy().ravel().tolist() == [40, 50]
    with pytest.raises(UserError, match="of which only left has a loss"):
        feed(ports, label="age,left,pixels")


@pytest.mark.parametrize(
    "model",
    [
        keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]),
        keras.Sequential([keras.layers.Dense(2)]),
    ],
)
def test_an_input_without_a_name_is_the_column_of_its_shape(model: Any) -> None:
    data = metadata("left", "pixels")
    features, labels = feed(ports_of(model, data=data), data=data)
    np.testing.assert_array_equal(features, RECORDS["pixels"])
    np.testing.assert_array_equal(labels, RECORDS["left"])
