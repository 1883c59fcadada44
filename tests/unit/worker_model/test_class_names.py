"""Labels that are texts or booleans: their classes, learned from the training data, and their numbers in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from elasticdl.shared.data.ragged import ColumnValues
from elasticdl.shared.data.schema import Metadata
from elasticdl.shared.errors import UserError
from elasticdl.worker.model.adapted.adapter import JobAdapter, adapt_to, refuse_missing
from elasticdl.worker.model.initial.files import read_classes
from elasticdl.worker.model.prediction.outputs import ModelOutputs
from elasticdl.worker.model.user.calls import RecordError
from elasticdl.worker.model.user.class_names import (
    Classes,
    ClassNames,
    LabelEncoder,
    TextLabel,
    classes_in,
    write_classes,
)
from elasticdl.worker.model.user.column_choice import ColumnChoice
from elasticdl.worker.model.user.compiled import Compiled
from elasticdl.worker.model.user.default_feed import DefaultFeed, Ports

from .conftest import WriteModule, runner_of

pytestmark = pytest.mark.tensorflow

PATH = Path("net.py")
KINDS = np.array(["b", "Ä", "a", "b"], object)
DATA: dict[str, ColumnValues] = {"x": np.arange(4.0), "kind": KINDS, "sold": np.array([True, False, True, True])}
METADATA = Metadata(format="csv", column_names=tuple(DATA), column_types=("float64", "string", "bool"))


def blocks() -> Iterator[Mapping[str, ColumnValues]]:
    for part in (slice(0, 2), slice(2, 4)):
        yield {name: np.asarray(values)[part] for name, values in DATA.items()}


def model_of(units: int, label: str = "kind") -> tuple[Any, Ports, ColumnChoice]:
    inputs = keras.Input((1,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(units, name="out")(inputs))
    choice = ColumnChoice(labels=(label,))
    return model, Ports.of(model, METADATA, choice, PATH), choice


def labels_of(units: int, label: str = "kind") -> tuple[TextLabel | None, ...]:
    _, ports, choice = model_of(units, label)
    return DefaultFeed(ports, METADATA, "train", choice, PATH).text_labels


def learned(tmp_path: Path, encoder: LabelEncoder) -> tuple[JobAdapter, ClassNames]:
    adapter = JobAdapter(PATH, (), adapt_to(PATH, tmp_path.as_uri(), {}, blocks))
    return adapter, adapter.learn_classes(encoder)


def test_classes_are_sorted_and_known_to_every_process_and_later_job(tmp_path: Path) -> None:
    adapter, classes = learned(tmp_path, LabelEncoder(labels_of(3), PATH))
    assert classes == (Classes(output="out", column="kind", names=("a", "b", "Ä")),)
    later = JobAdapter(PATH, adapter.uris, refuse_missing(PATH))
    assert later.learn_classes(LabelEncoder(labels_of(3), PATH)) == later.trained_classes == classes
    assert not adapter.adapted, "weights of a file may be used with these classes"


def test_booleans_are_false_and_true_whatever_the_data_has(tmp_path: Path) -> None:
    _, ((sold),) = learned(tmp_path, LabelEncoder(labels_of(1, "sold"), PATH))
    assert sold is not None and sold.names == ("False", "True")
    assert sold.numbers(np.array([True, False])).tolist() == [1, 0]
    assert sold.numbers(np.array(["True", b"False"], object)).tolist() == [1, 0], "as CSV has them"


@pytest.mark.parametrize(
    ("units", "message"),
    [
        (
            1,
            r"more than 2 classes \(a, b, Ä\), and output 'out' of the model has the shape \(None, 1\)",
        ),
        (2, "more than 2 classes"),
        (4, r"label 'kind' has 3 classes \(a, b, Ä\), and output 'out' of the model has the shape \(None, 4\)"),
    ],
)
def test_an_output_for_another_number_of_classes_is_refused(tmp_path: Path, units: int, message: str) -> None:
    with pytest.raises(UserError, match=rf"^net.py: .*{message}(.|\n)*--column_types=kind=float64.*--label=COLUMN"):
        learned(tmp_path, LabelEncoder(labels_of(units), PATH))


def test_records_without_a_label_are_refused(tmp_path: Path) -> None:
    missing = LabelEncoder(labels_of(3), PATH)
    with pytest.raises(UserError, match=r"no label in column 'kind'\n.*--fill_missing=kind=unknown"):
        missing.adapt(lambda: iter([{"kind": np.array(["a", ""], object)}]))


def test_a_job_that_starts_from_a_model_keeps_its_classes(tmp_path: Path) -> None:
    trained = (Classes(output="out", column="kind", names=("b", "a", "Ä")),)
    _, classes = learned(tmp_path, LabelEncoder(labels_of(3), PATH, trained))
    assert classes == trained
    other = (Classes(output="other", column="kind", names=("x", "y", "z")),)
    _, ((one),) = learned(tmp_path / "new", LabelEncoder(labels_of(3), PATH, other))
    assert one is not None and one.names == ("a", "b", "Ä")


@pytest.mark.parametrize(
    ("loss", "units", "expected"),
    [
        ("sparse_categorical_crossentropy", 3, [1, 2, 0, 1]),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), 3, [1, 2, 0, 1]),
        ("categorical_crossentropy", 3, [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]),
        (keras.losses.CategoricalFocalCrossentropy(), 3, [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]),
        (lambda labels, predictions: predictions, 3, [1, 2, 0, 1]),
        ("binary_crossentropy", 1, [[1], [0], [1], [1]]),
    ],
)
def test_the_loss_gets_numbers_in_the_form_that_it_compares(loss: Any, units: int, expected: Any) -> None:
    model, ports, choice = model_of(units, "kind" if units > 1 else "sold")
    model.compile("sgd", loss=loss)
    ports = Ports(
        inputs=ports.inputs,
        outputs=ports.outputs,
        output_names=ports.output_names,
        one_hot=Compiled(model, PATH).one_hot(ports.output_names),
    )
    encoder = LabelEncoder(DefaultFeed(ports, METADATA, "train", choice, PATH).text_labels, PATH)
    encoder.adapt(blocks)
    feed = DefaultFeed(ports, METADATA, "evaluate", choice, PATH, encoder.classes)
    numbered = {name: tf.constant(np.asarray(one).tolist()) for name, one in feed.numbered(DATA).items()}
    _, labels = feed(numbered, "evaluate", METADATA)
    assert labels.numpy().tolist() == expected


def test_an_unknown_label_says_where_it_is_in_the_batch() -> None:
    classes = Classes(output="out", column="kind", names=("a", "b"))
    with pytest.raises(RecordError, match="label 'Ä' in column 'kind' is no class of the model, which knows a, b") as e:
        classes.numbers(KINDS)
    assert e.value.place == 1


def test_an_evaluation_has_labels_as_the_training_had() -> None:
    _, ports, choice = model_of(3, "x")
    classes = (Classes(output="out", column="x", names=("1", "2", "x")),)
    with pytest.raises(UserError, match=r"is float64, and the model was trained with texts: 1, 2, x\n.*=x=string"):
        DefaultFeed(ports, METADATA, "evaluate", choice, PATH, classes)
    _, ports, choice = model_of(3)
    with pytest.raises(UserError, match=r"label 'kind' is text, and the model was trained with numbers as labels"):
        DefaultFeed(ports, METADATA, "evaluate", choice, PATH)
    DefaultFeed(ports, METADATA, "predict", choice, PATH)


def test_exported_files_hold_the_classes_and_load_in_keras(tmp_path: Path) -> None:
    model, _, _ = model_of(3)
    classes = (Classes(output="out", column="kind", names=("a", "b", "Ä")), None)
    file, folder = tmp_path / "model.keras", tmp_path / "saved_model"
    model.save(file)
    model.export(folder, verbose=False)
    assert read_classes(file.as_uri()) == read_classes(folder.as_uri()) == ()
    for each in (file, folder):
        write_classes(classes, each)
        assert read_classes(each.as_uri()) == classes
    assert classes_in(file) == classes
    assert keras.saving.load_model(file).count_params() == model.count_params()
    assert tf.saved_model.load(str(folder)) is not None


BINARY = """
def custom_model(activation=None):
    inputs = keras.Input((1,), name="x")
    first = layers.Dense(1, activation=activation, kernel_initializer="ones", name="first")(inputs)
    second = layers.Dense(3, kernel_initializer=lambda *_, **__: [[1.0, 2.0, 0.0]], name="second")(inputs)
    return keras.Model(inputs, [first, second])

def loss(labels, predictions):
    logits = {logits}
    return keras.losses.binary_crossentropy(labels[0], predictions[0], from_logits=logits)

def feed_batch(records, mode, metadata):
    return records["x"], (records["x"], records["x"])
"""


@pytest.mark.parametrize(("activation", "logits"), [(None, True), ("sigmoid", False)])
def test_predictions_are_named_by_the_loss_and_the_largest_output(
    write_module: WriteModule, activation: str | None, logits: bool
) -> None:
    module = write_module(BINARY.format(logits=logits), activation=activation)
    names = (("no", "yes"), ("a", "b", "c"))
    classes = tuple(
        Classes(output=column, column=column, names=each) for column, each in zip(("sold", "kind"), names, strict=True)
    )
    raw = {"x": np.array([[-2.0], [0.25], [2.0]], np.float32)}
    runner, batch = runner_of(replace(module, classes=classes), raw)
    outputs = ModelOutputs(runner=runner).outputs(batch, runner.initial_dense(), {})
    assert {name: words.tolist() for name, words in outputs.classes.items()} == {
        "predicted_sold": ["no", "yes", "yes"],
        "predicted_kind": ["c", "b", "b"],
    }
    processed = ModelOutputs(runner=runner, processor=Doubling()).outputs(batch, runner.initial_dense(), {})
    assert not processed.classes


class Doubling:
    def process(self, predictions: Any, worker_id: int) -> Any:
        return {"doubled": 2 * predictions[0]}


COMPILED = """
def custom_model():
    inputs = keras.Input((1,), name="x")
    first = layers.Dense(3, activation="softmax", name="kind")(inputs)
    second = layers.Dense(1, kernel_initializer="ones", name="sold")(inputs)
    model = keras.Model(inputs, {"kind": first, "sold": second})
    logits = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile("sgd", loss={"kind": "categorical_crossentropy", "sold": logits})
    return model

def feed_batch(records, mode, metadata):
    return records["x"], {"kind": tf.one_hot([0, 1, 2], 3), "sold": records["x"]}

del loss, optimizer
"""


def test_the_threshold_of_one_output_is_that_of_its_own_loss(write_module: WriteModule) -> None:
    module = write_module(COMPILED)
    sold = Classes(output="sold", column="sold", names=("no", "yes"))
    raw = {"x": np.array([[-2.0], [0.25], [2.0]], np.float32)}
    runner, batch = runner_of(replace(module, classes=(None, sold)), raw)
    outputs = ModelOutputs(runner=runner).outputs(batch, runner.initial_dense(), {})
    assert outputs.classes["predicted_sold"].tolist() == ["no", "yes", "yes"]


def test_losses_that_keras_reports_itself_are_left_to_it() -> None:
    model, _, _ = model_of(3)
    model.compile("sgd", loss="unknown")
    assert Compiled(model, PATH).one_hot(("out",)) == frozenset()
