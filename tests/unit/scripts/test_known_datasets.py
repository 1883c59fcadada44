"""Datasets of Keras' utilities: files and windows are read by number, as the dataset itself gives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.utils import image_dataset_utils, text_dataset_utils, timeseries_dataset_utils

from elasticdl.cli.script import replacing
from elasticdl.cli.script.known_datasets import numbered
from elasticdl.shipping.columns import Layout, laid_out
from elasticdl.shipping.numbered import NumberedData
from elasticdl.shipping.pickling import loads
from elasticdl.shipping.shipped import TRAINING, dump_source

from .test_numbered import SCRIPT, seeded

pytestmark = pytest.mark.tensorflow
SERIES = np.arange(60, dtype="float64").reshape(30, 2)


@pytest.fixture(autouse=True)
def _noting(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (text_dataset_utils, image_dataset_utils, timeseries_dataset_utils):
        name = replacing.UTILITIES[module.__name__]
        monkeypatch.setattr(module, name, replacing._noting(getattr(module, name)))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    for number in range(7):
        folder = tmp_path / "texts" / ("good" if number % 2 else "bad")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_bytes(b"caf\xe9 \xff" if number == 3 else f"word{number} and more".encode())
    return tmp_path / "texts"


def batches_of(dataset: Any) -> Iterator[dict[str, list[Any]]]:
    for batch in dataset:
        yield {
            name: column.tolist() for name, column in laid_out(*keras.utils.unpack_x_y_sample_weight(batch))[1].items()
        }


def read_by_number(dataset: Any, folder: Path, layout: Layout) -> list[dict[str, list[Any]]]:
    found = numbered(dataset)
    assert found is not None
    content = dump_source(folder, SCRIPT, TRAINING, found.source)
    reader = NumberedData(lambda: loads(content, folder / "training_arrays"), layout)
    reader.reach(0, seeded)
    size = found.source.batch_size
    parts = [np.arange(at, min(at + size, found.source.count)) for at in range(0, found.source.count, size)]
    return [{name: column.tolist() for name, column in reader.read(part).items()} for part in parts]


@pytest.mark.parametrize(
    "given",
    [
        {"targets": SERIES[:, 0], "sequence_length": 4, "batch_size": 5},
        {"targets": None, "sequence_length": 3, "sampling_rate": 2, "sequence_stride": 4, "batch_size": 2},
        {"targets": SERIES, "sequence_length": 5, "start_index": 3, "end_index": 20, "batch_size": 8},
    ],
)
def test_windows_are_those_of_the_dataset(tmp_path: Path, given: dict[str, Any]) -> None:
    dataset = keras.utils.timeseries_dataset_from_array(SERIES, **given)
    layout = Layout(features="x", labels=None if given["targets"] is None else "y")
    assert read_by_number(dataset.prefetch(2), tmp_path, layout) == list(batches_of(dataset))


@pytest.mark.parametrize("mode", ["int", "binary", "categorical", None])
def test_files_of_text_are_read_where_they_are_and_mapped(tmp_path: Path, texts: Path, mode: Any) -> None:
    dataset = keras.utils.text_dataset_from_directory(
        texts, label_mode=mode, batch_size=3, shuffle=False, max_length=8, verbose=False
    )
    layout = Layout(features="x", labels=None if mode is None else "y")
    assert read_by_number(dataset, tmp_path, layout) == list(batches_of(dataset))
    if mode is None:
        return
    lengths = dataset.map(lambda text, label: (tf.strings.length(text), label)).cache().prefetch(1)
    assert read_by_number(lengths, tmp_path, layout) == list(batches_of(lengths))


def test_a_layer_in_a_map_travels(tmp_path: Path, texts: Path) -> None:
    dataset = keras.utils.text_dataset_from_directory(texts, batch_size=4, shuffle=False, verbose=False)
    words = keras.layers.TextVectorization(max_tokens=20, output_sequence_length=3)
    words.adapt(["word1 and more", "word2 and less"])
    mapped = dataset.map(lambda text, label: (words(tf.expand_dims(text, -1)), label))
    layout = Layout(features="x", labels="y")
    assert read_by_number(mapped, tmp_path, layout) == list(batches_of(mapped))


def test_images_are_loaded_by_number_too(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / "images" / str(number % 2)).mkdir(parents=True, exist_ok=True)
        image = np.full((4, 4, 3), number * 20, "uint8")
        keras.utils.save_img(tmp_path / "images" / str(number % 2) / f"{number}.png", image, scale=False)
    dataset = keras.utils.image_dataset_from_directory(
        tmp_path / "images", image_size=(2, 2), batch_size=3, shuffle=False, verbose=False
    )
    assert read_by_number(dataset, tmp_path, Layout(features="x", labels="y")) == list(batches_of(dataset))


def test_the_job_shuffles_if_the_dataset_does(texts: Path) -> None:
    windows = keras.utils.timeseries_dataset_from_array(SERIES, None, 3, batch_size=4, shuffle=True)
    plain = keras.utils.timeseries_dataset_from_array(SERIES, None, 3, batch_size=None)
    assert [one and one.shuffled for one in map(numbered, (windows, plain.shuffle(9).batch(4), plain.batch(4)))] == [
        True,
        True,
        False,
    ]


def test_what_can_not_be_taken_apart_is_left_alone() -> None:
    made = keras.utils.timeseries_dataset_from_array(SERIES, SERIES, 3, batch_size=4)
    whole = keras.utils.timeseries_dataset_from_array(SERIES, SERIES, 3, batch_size=None)
    others = [
        made.take(2),
        made.repeat(),
        made.unbatch(),
        whole,
        whole.batch(4, drop_remainder=True),
        whole.map(lambda x, y: (x + 1, y)).batch(4),
        tf.data.Dataset.from_tensor_slices(SERIES).batch(2),
    ]
    assert [numbered(one) for one in others] == [None] * len(others)
