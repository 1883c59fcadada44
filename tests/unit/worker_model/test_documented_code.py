"""The Python code in the guides does what the guides say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.unit.master.driver import job_spec
from tests.unit.worker_model.conftest import WriteModule, columns, runner_of

from elasticdl.layers import adapting
from elasticdl.shared.data import Reader, ReaderOptions, plan_sources
from elasticdl.shared.data.schema import Metadata
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import open_store
from elasticdl.worker.model.adapted.adapter import JobAdapter, adapt_to
from elasticdl.worker.model.user.callbacks.accepted import ModelFacts, check_callbacks, make_callbacks
from elasticdl.worker.model.user.class_names import LabelEncoder
from elasticdl.worker.model.user.column_choice import ColumnChoice, Constants
from elasticdl.worker.model.user.columns import ColumnPacker
from elasticdl.worker.model.user.default_feed import DefaultFeed, Ports

pytestmark = pytest.mark.tensorflow
DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str) -> list[str]:
    """The blocks of Python on a page."""
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def run(code: str) -> dict[str, Any]:
    """The names that a part of a model file defines."""
    names: dict[str, Any] = {"tf": tf}
    exec(code, names)
    return names


def test_the_callbacks_of_the_guide_are_accepted(write_module: WriteModule) -> None:
    (code,) = blocks("callbacks.md")
    made = make_callbacks(write_module(f"custom_model = keras.Model\n{code}"))
    spec = job_spec()
    spec = replace(spec, validation=spec.plan, evaluate_epochs=True)
    found = check_callbacks(made, Path("model.py"), spec, ModelFacts(directions={"loss": "down"}))
    assert found.names == ("EarlyStopping", "ReduceLROnPlateau", "CSVLogger", "ModelCheckpoint", "LambdaCallback")
    assert found.best is not None
    assert (found.best.metric, found.best.save) == ("loss", True)


def test_the_compiled_model_of_the_guide_is_a_model_file() -> None:
    code, *_ = blocks("model-file.md")
    data = Metadata(format="csv", column_names=("age", "income", "buys"), column_types=("int64", "float64", "int64"))
    ports = Ports.of(run(code)["custom_model"](), data, ColumnChoice(), Path("model.py"))
    records = {name: tf.constant([1, 2]) for name in data.column_names}
    features, labels = DefaultFeed(ports, data, "train", ColumnChoice(), Path("model.py"))(records, "train", data)
    assert [one.shape for one in (*features, labels)] == [(2, 1)] * 3


def test_the_feed_of_the_guide_decodes_images_in_folders(tmp_path: Path) -> None:
    for name, side in (("rose/1.png", 3), ("tulip/1.png", 5), ("tulip/2.png", 8)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        image = tf.cast(tf.fill((side, side, 1), 10 * side), tf.uint8)
        (tmp_path / name).write_bytes(tf.io.encode_png(image).numpy())
    store = open_store(str(tmp_path))
    data = plan_sources(str(tmp_path), ReaderOptions(), store)
    reader = Reader(store=store, sources=data.sources, schema=data.schema, index=data.indices.__getitem__)
    columns = reader.read(Shard(source=0, start=0, end=3)).columns
    feed_batch, packer = run(blocks("data.md")[0])["feed_batch"], ColumnPacker()
    packed = packer.pack(columns)
    feed = tf.function(lambda records: feed_batch(packer.unpack(records), "train", data.schema.metadata))
    images, labels = feed(packed)
    assert images.shape == (3, 64, 64, 3)
    values = dict(zip(columns["file"].tolist(), images.numpy()[:, 0, 0, 0].tolist(), strict=True))
    assert values == {"rose/1.png": 30, "tulip/1.png": 50, "tulip/2.png": 80}
    assert [data.schema.metadata.class_names[label] for label in labels] == columns["class"].tolist()


def test_the_subclassed_model_of_the_guide_takes_the_columns_that_its_file_names() -> None:
    _, code, *_ = blocks("model-file.md")
    names = ("bought", "income", "age")
    data = Metadata(format="csv", column_names=names, column_types=("int64", "float64", "int64"))
    file = run(code)
    choice = ColumnChoice.of("", Constants(file["label"], file["features"]), Path("model.py"))
    ports = Ports.of(file["model"], data, choice, Path("model.py"))
    records = {name: tf.constant([place, place]) for place, name in enumerate(names)}
    features, labels = DefaultFeed(ports, data, "train", choice, Path("model.py"))(records, "train", data)
    assert features.numpy().tolist() == [[2, 1], [2, 1]] and labels.shape == (2, 1)


def test_the_adapted_layers_of_the_guide_are_adapted(tmp_path: Path) -> None:
    _, _, code, *_ = blocks("model-file.md")
    columns = {"age": np.array([20, 40]), "income": np.array([1.0, 3.0]), "city": np.array(["Rome", "Oslo"], object)}
    types = {"age": "int64", "income": "float64", "city": "string", "bought": "int64"}
    path = Path("model.py")
    adapting.use(JobAdapter(path, (), adapt_to(path, tmp_path.as_uri(), types, lambda: iter([columns]))))
    try:
        model = run(code)["custom_model"]()
    finally:
        adapting.use(None)
    (numbers,) = [layer for layer in model.layers if isinstance(layer, keras.layers.Normalization)]
    assert np.ravel(numbers.mean).tolist() == [30, 2]


def test_the_text_labels_of_the_guide_are_numbered() -> None:
    (code,) = (block for block in blocks("model-file.md") if "species" in block)
    names = ("length", "width", "species")
    data = Metadata(format="csv", column_names=names, column_types=("float64", "float64", "string"))
    file, path = run(code), Path("model.py")
    model, choice = file["custom_model"](), ColumnChoice.of("", Constants(file["label"]), path)
    ports = Ports.of(model, data, choice, path)
    encoder = LabelEncoder(DefaultFeed(ports, data, "train", choice, path).text_labels, path)
    records = {"length": np.arange(3.0), "width": np.ones(3), "species": np.array(["b", "c", "a"], object)}
    encoder.adapt(lambda: iter([records]))
    feed = DefaultFeed(ports, data, "train", choice, path, encoder.classes)
    tensors = {name: tf.constant(one.tolist()) for name, one in feed.numbered(records).items()}
    features, labels = feed(tensors, "train", data)
    assert labels.numpy().tolist() == [1, 2, 0]
    assert np.isfinite(model.compute_loss(features, labels, model(features)))


def test_the_feed_of_the_guide_needs_no_labels_to_predict() -> None:
    feed, _ = blocks("predict.md")
    feed_batch = run(feed)["feed_batch"]
    records = {"a": tf.constant([1.0, 2.0]), "b": tf.constant([3.0, 4.0])}
    assert feed_batch(records, "predict", None).numpy().tolist() == [[1, 3], [2, 4]]
    features, labels = feed_batch({**records, "label": tf.constant([0, 1])}, "train", None)
    assert (features.shape, labels.numpy().tolist()) == ((2, 2), [0, 1])


def test_the_processor_of_the_guide_gives_columns() -> None:
    _, processor = blocks("predict.md")
    written = run(processor)["PredictionOutputsProcessor"]().process(np.array([[0.2, 0.8], [0.9, 0.1]]), 0)
    assert {name: column.tolist() for name, column in written.items()} == {"digit": [1, 0], "probability": [0.8, 0.9]}


def test_the_tables_of_the_guide_have_their_options(write_module: WriteModule) -> None:
    (code,) = (block for block in blocks("model-file.md") if "min_count" in block)
    body = f"""{code}
def feed_batch(records, mode, metadata):
    return {{"user": records["user"], "item": records["item"][:, :1]}}, records["label"]
"""
    runner, _ = runner_of(write_module(body), columns())
    found = {table.name: (table.min_count, table.expire_after, table.input_dim) for table in runner.tables}
    assert found == {"users": (3, 0, 0), "items": (2, 100_000, 50_000)}
    options = ", trained from update 2 of an id on, removed after 100,000 updates without it"
    assert runner.describe()[:2] == [
        "embedding users: any number of ids x 16 served by the ps, trained from update 3 of an id on",
        f"embedding items: 50,000 x 16 (3.1 MiB) served by the ps{options}",
    ]
