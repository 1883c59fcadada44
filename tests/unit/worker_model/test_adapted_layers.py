"""Layers that are adapted to the training data: the state that Keras computes, once, for every process of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from elasticdl.layers import adapt, adapting
from elasticdl.shared.data.ragged import ColumnValues, Ragged
from elasticdl.shared.errors import UserError
from elasticdl.worker.model.adapted.adapter import (
    ColumnBlocks,
    ColumnDataset,
    ExportedModelAdapter,
    JobAdapter,
    Missing,
    ReaderAdapter,
    adapt_to,
    refuse_missing,
    wait_for,
)
from elasticdl.worker.model.adapted.states import encode_state, key_of, set_state

pytestmark = pytest.mark.tensorflow

PATH = Path("net.py")
WORDS = np.array(["a b c", "b c", "c Ünder", " ", "a\nb"], object)
COLUMNS: dict[str, ColumnValues] = {
    "age": np.arange(20, 45, dtype=np.int64),
    "income": np.linspace(-3.5, 9.25, 25),
    "text": WORDS.repeat(5),
    "pixels": np.arange(75, dtype=np.float32).reshape(25, 3),
    "items": Ragged(values=np.arange(50, dtype=np.int64) % 7, splits=np.arange(0, 52, 2)),
}
TYPES = {"age": "int64", "income": "float64", "text": "string", "pixels": "float32", "items": "int64"}
LAYERS: dict[str, tuple[Callable[[], Any], str]] = {
    "normalization": (lambda: layers.Normalization(), "income"),
    "normalization of integers": (lambda: layers.Normalization(axis=None), "age"),
    "normalization of vectors": (lambda: layers.Normalization(), "pixels"),
    "string lookup": (lambda: layers.StringLookup(max_tokens=4, num_oov_indices=2), "text"),
    "string lookup with tf-idf": (lambda: layers.StringLookup(output_mode="tf_idf"), "text"),
    "integer lookup": (lambda: layers.IntegerLookup(mask_token=0, output_mode="int"), "age"),
    "text vectorization": (lambda: layers.TextVectorization(output_sequence_length=4), "text"),
    "text vectorization with tf-idf": (lambda: layers.TextVectorization(max_tokens=5, output_mode="tf_idf"), "text"),
    "discretization": (lambda: layers.Discretization(num_bins=4), "income"),
}


def blocks(size: int = 10) -> ColumnBlocks:
    def read() -> Iterator[Mapping[str, ColumnValues]]:
        for start in range(0, 25, size):
            part = slice(start, start + size)
            yield {
                name: values.take(part) if isinstance(values, Ragged) else values[part]
                for name, values in COLUMNS.items()
            }

    return read


def values_of(column: str) -> Any:
    """What the layer is called with: shape (25, values)."""
    values = COLUMNS[column]
    assert not isinstance(values, Ragged)
    if values.dtype == object:
        return tf.constant(values.tolist(), tf.string)[:, None]
    return tf.constant(values.reshape(25, -1))


def first(storage: Path, read: ColumnBlocks | None = None, earlier: tuple[str, ...] = ()) -> JobAdapter:
    """The adapter of the process that adapts."""
    return JobAdapter(PATH, (), adapt_to(PATH, storage.as_uri(), TYPES, read or blocks(), earlier))


def later(known: tuple[str, ...], missing: Missing | None = None) -> JobAdapter:
    """The adapter of another process."""
    return JobAdapter(PATH, known, missing or refuse_missing(PATH))


@pytest.mark.parametrize("name", LAYERS)
def test_the_state_is_that_of_keras_in_every_process(name: str, tmp_path: Path) -> None:
    make, column = LAYERS[name]
    by_keras, mine, other = make(), make(), make()
    by_keras.adapt(tf.data.Dataset.from_tensor_slices(values_of(column)).batch(10))
    adapter = first(tmp_path)
    adapter.adapt(mine, (column,))
    later(adapter.uris).adapt(other, (column,))
    expected = by_keras(values_of(column)).numpy()
    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(mine(values_of(column)).numpy(), expected)
    np.testing.assert_array_equal(other(values_of(column)).numpy(), expected)


def test_several_columns_are_stacked_in_the_order_given(tmp_path: Path) -> None:
    layer, by_keras = layers.Normalization(), layers.Normalization()
    first(tmp_path).adapt(layer, ("income", "age"))
    both = tf.stack([COLUMNS["income"], tf.cast(COLUMNS["age"], tf.float64)], 1)
    by_keras.adapt(tf.data.Dataset.from_tensor_slices(both).batch(10))
    np.testing.assert_array_equal(layer(both).numpy(), by_keras(both).numpy())


def test_all_elements_of_lists_of_varying_length_count(tmp_path: Path) -> None:
    layer = layers.IntegerLookup()
    first(tmp_path).adapt(layer, ("items",))
    assert sorted(layer.get_vocabulary()) == [-1, 0, 1, 2, 3, 4, 5, 6]


def test_a_feature_space_takes_the_columns_of_its_features(tmp_path: Path) -> None:
    def space() -> Any:
        features = {"income": "float_normalized", "text": "string_categorical", "age": "float_discretized"}
        return keras.utils.FeatureSpace(features, output_mode="concat")

    by_keras, mine, other = space(), space(), space()
    used = {name: values_of(name) for name in ("income", "text", "age")}
    by_keras.adapt(
        tf.data.Dataset.from_tensor_slices({name: tf.squeeze(one, 1) for name, one in used.items()}).batch(10)
    )
    adapter = first(tmp_path)
    adapter.adapt(mine, ())
    later(adapter.uris).adapt(other, ())
    np.testing.assert_array_equal(mine(used).numpy(), by_keras(used).numpy())
    np.testing.assert_array_equal(other(used).numpy(), by_keras(used).numpy())


def test_the_data_is_read_once_for_each_layer_however_often_the_model_is_made(tmp_path: Path) -> None:
    read: list[str] = []

    def counting() -> Iterator[Mapping[str, ColumnValues]]:
        read.append("again")
        return blocks()()

    adapter = first(tmp_path, counting)
    adapter.adapt(layers.StringLookup(name="one"), ("text",))
    once = len(read)
    for name in ("two", "three"):
        layer = layers.StringLookup(name=name)
        adapter.adapt(layer, ("text",))
        assert "c Ünder" in layer.get_vocabulary()
    assert len(read) == once
    assert len(adapter.uris) == 1
    assert next(iter(adapter.adapted)) == "StringLookup 'one' to text"


def test_another_process_waits_for_the_state(tmp_path: Path) -> None:
    adapter = first(tmp_path)
    adapter.adapt(layers.StringLookup(), ("text",))
    layer = layers.StringLookup()
    waiting = later((), wait_for(tmp_path.as_uri()))
    waiting.adapt(layer, ("text",))
    assert waiting.uris == adapter.uris
    assert "b c" in layer.get_vocabulary()


def test_a_job_that_starts_from_another_one_keeps_its_states_in_its_own_storage(tmp_path: Path) -> None:
    trained = first(tmp_path / "first")
    trained.adapt(layers.Normalization(), ("income",))

    def other_data() -> Iterator[Mapping[str, ColumnValues]]:
        yield {"income": np.array([100.0, 300.0]), "age": np.array([1, 3])}

    started = first(tmp_path / "second", other_data, trained.uris)
    kept, new = layers.Normalization(), layers.Normalization()
    started.adapt(kept, ("income",))
    started.adapt(new, ("age",))
    assert float(np.ravel(kept.mean)[0]) == pytest.approx(COLUMNS["income"].mean(), rel=1e-6)  # type: ignore[union-attr]
    assert float(np.ravel(new.mean)[0]) == 2
    assert all(uri.startswith((tmp_path / "second").as_uri()) for uri in started.uris)


def test_what_an_own_layer_with_variables_has_learned_travels_too(tmp_path: Path) -> None:
    class Largest(layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.largest = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

        def adapt(self, data: Any) -> None:
            self.build(data.element_spec.shape)
            for batch in data:
                self.largest.assign(tf.maximum(self.largest, tf.reduce_max(tf.cast(batch, tf.float32), 0)))

        def call(self, values: Any) -> Any:
            return values / self.largest

    adapter, layer, other = first(tmp_path), Largest(), Largest()
    adapter.adapt(layer, ("pixels",))
    later(adapter.uris).adapt(other, ("pixels",))
    assert other.largest.numpy().tolist() == [72, 73, 74]


@pytest.mark.parametrize(
    ("make", "columns", "message"),
    [
        (lambda: layers.Dense(3), ("age",), r"net\.py: adapt\(\) is called with Dense 'dense.*', which has no method"),
        (
            lambda: layers.Normalization(),
            ("agee",),
            r"'agee' is no column of the data\n  Did you mean 'age'\? Columns: age",
        ),
        (lambda: layers.Normalization(), (), r"no column is given\n  Columns of the data: age, income"),
        (lambda: layers.Normalization(), ("text",), r"column 'text' is string, and the layer takes numbers"),
        (lambda: layers.StringLookup(), ("age",), r"column 'age' is int64, and .*text\n .*--column_types=age=string"),
        (
            lambda: layers.Normalization(mean=1, variance=1),
            ("age",),
            "was given its mean and variance, so there is nothing to adapt",
        ),
    ],
)
def test_what_can_not_be_adapted_is_refused(
    make: Callable[[], Any], columns: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        first(tmp_path).adapt(make(), columns)


def test_missing_numbers_and_data_without_columns_are_refused(tmp_path: Path) -> None:
    def missing() -> Iterator[Mapping[str, ColumnValues]]:
        yield {"income": np.array([1.0, np.nan])}

    with pytest.raises(UserError, match=r"learned NaN or infinite numbers.*\n  .*--fill_missing=income=0"):
        first(tmp_path, missing).adapt(layers.Normalization(), ("income",))
    no_columns = JobAdapter(PATH, (), adapt_to(PATH, tmp_path.as_uri(), {}, blocks()))
    with pytest.raises(UserError, match="the training data has no columns, because it is TFRecord data"):
        no_columns.adapt(layers.Normalization(), ("income",))


def with_texts(*texts: str) -> ColumnBlocks:
    return lambda: iter([{"text": np.array(texts, object)}])


def test_the_empty_text_as_last_word_is_refused_because_keras_loses_it(tmp_path: Path) -> None:
    message = r"StringLookup .*, 'text'\): some values are empty.*\n  .*--fill_missing text=unknown\. .*mask_token=''"
    for make in (layers.StringLookup, lambda: layers.StringLookup(num_oov_indices=0, output_mode="one_hot")):
        with pytest.raises(UserError, match=message):
            first(tmp_path, with_texts("a", "", "b", "a", "b")).adapt(make(), ("text",))


@pytest.mark.parametrize(("mask", "texts"), [("", ["a", "", "b", "a", "b"]), (None, ["a", "", "", "b"])])
def test_keras_loads_a_lookup_with_the_empty_text_elsewhere(mask: str | None, texts: list[str], tmp_path: Path) -> None:
    lookup = layers.StringLookup(mask_token=mask)
    first(tmp_path, with_texts(*texts)).adapt(lookup, ("text",))
    model = keras.Sequential([keras.Input((1,), dtype="string"), lookup])
    model.save(tmp_path / "model.keras")
    values = tf.constant([["a"], [""], ["c"]])
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert np.asarray(loaded(values)).tolist() == np.asarray(model(values)).tolist()


def test_an_error_in_the_data_stays_what_it_is(tmp_path: Path) -> None:
    def damaged() -> Iterator[Mapping[str, ColumnValues]]:
        yield from blocks()()
        raise UserError("train.csv changed since the job was planned")

    with pytest.raises(UserError, match=r"^train\.csv changed"):
        first(tmp_path, damaged).adapt(layers.Normalization(), ("income",))


def test_lost_damaged_and_unknown_states_are_refused(tmp_path: Path) -> None:
    adapter = first(tmp_path)
    adapter.adapt(layers.StringLookup(), ("text",))
    (uri,) = adapter.uris
    with pytest.raises(UserError, match=r"adapt\(StringLookup '.*', 'age'\) was not called when the job was planned"):
        later((uri,)).adapt(layers.StringLookup(), ("age",))
    file = Path(uri.removeprefix("file://"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match="the state of an adapted layer, is damaged"):
        later((uri,)).adapt(layers.StringLookup(), ("text",))
    file.unlink()
    with pytest.raises(UserError, match="does not exist any more"):
        later((uri,)).adapt(layers.StringLookup(), ("text",))


def test_a_file_with_weights_is_refused_as_the_start_of_adapted_layers(tmp_path: Path) -> None:
    adapter = first(tmp_path)
    adapter.refuse_file("old.keras")
    adapter.adapt(layers.StringLookup(name="city"), ("text",))
    with pytest.raises(UserError, match=r"adapts StringLookup 'city' to text, and the weights in old\.keras"):
        adapter.refuse_file("old.keras")


def test_adapt_returns_the_layer_and_needs_a_job(tmp_path: Path) -> None:
    layer = layers.StringLookup()
    with pytest.raises(RuntimeError, match=r"there is none here\. Call layer\.adapt\(values\) instead"):
        adapt(layer, "text")
    try:
        adapting.use(first(tmp_path))
        assert adapt(layer, "text") is layer
        adapting.use(ExportedModelAdapter())
        assert adapt(layers.StringLookup(), ["text"]).vocabulary_size() == 1
        adapting.use(ReaderAdapter(PATH))
        with pytest.raises(UserError, match="is called while the file is imported, before its reader can be used"):
            adapt(layer, "text")
    finally:
        adapting.use(None)


def test_equal_layers_have_equal_keys() -> None:
    def key(**config: Any) -> str:
        return key_of(layers.TextVectorization(**config), ("text",))

    def by_word(text: Any) -> Any:
        return tf.strings.split(text)

    assert key() == key(name="other")
    assert len({key(), key(max_tokens=9), key(split=by_word), key(standardize=by_word)}) == 4
    assert key() != key_of(layers.TextVectorization(), ("title",))


def test_functions_of_the_same_name_have_different_keys() -> None:
    def split_at(separator: str) -> Any:
        return layers.TextVectorization(split=lambda text: tf.strings.split(text, separator))

    first, second = layers.TextVectorization(split=lambda text: tf.strings.split(text, ",")), split_at(";")
    third = layers.TextVectorization(split=lambda text: tf.strings.bytes_split(text))
    assert len({key_of(layer, ("text",)) for layer in (first, second, third, split_at(","))}) == 4
    assert key_of(split_at(";"), ("text",)) == key_of(second, ("text",))


def test_states_keep_words_that_a_text_file_would_break() -> None:
    layer, other = layers.StringLookup(), layers.StringLookup()
    layer.adapt(tf.constant([["a\nb"], ["  "], ["ü"]]))
    set_state(other, encode_state(layer))
    assert other.get_vocabulary() == layer.get_vocabulary()


def test_a_dataset_is_read_from_its_beginning_each_time() -> None:
    dataset = ColumnDataset(blocks()).stacked(("age",))
    assert [len(batch) for batch in dataset] == [len(batch) for batch in dataset] == [10, 10, 5]
