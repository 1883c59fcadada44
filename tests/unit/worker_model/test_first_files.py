"""Model files of the first ElasticDL start as they are, or a message names each line and what to write instead."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.shared.data.schema import Metadata
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import ModelFile, check_syntax, resolve
from elasticdl.shared.job.old_names import refuse_old_names
from elasticdl.worker.model.runner import ModelRunner, RunnerSettings
from elasticdl.worker.model.user.callbacks.accepted import make_callbacks
from elasticdl.worker.model.user.feeder import BatchFeeder
from elasticdl.worker.model.user.module import load

from .first_files import FILES, numbered

pytestmark = pytest.mark.tensorflow
random = np.random.default_rng(0)


def images(side: int, channels: int) -> list[bytes]:
    return [example(image=random.uniform(0, 255, side * side * channels), label=[n % 10]) for n in range(4)]


def example(**features: Any) -> bytes:
    made = {}
    for name, values in features.items():
        if isinstance(values, list):
            made[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        else:
            made[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
    content: bytes = tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()
    return content


PEOPLE = {"age": np.array([20.0, 30, 40, 50]), "hours": np.array([40.0, 0, 10, 30]), "label": np.array([0, 1, 0, 1])}
IRIS = {f"column_{n}": random.uniform(size=4) for n in range(4)} | {"class": np.array([0, 1, 2, 0])}
IDS = [example(feature=[1, n, 7], label=[n % 2]) for n in range(4)]
STARTS: dict[str, Any] = {
    "mnist_functional_api": images(28, 1),
    "mnist_subclass": images(28, 1),
    "cifar10_functional_api": images(8, 3),
    "cifar10_subclass": images(8, 3),
    "census_dnn_numbers": PEOPLE,
    "deepfm_functional_api": IDS,
    "deepfm_keras_embedding": IDS,
    "iris_dnn": IRIS,
    "sqlflow_dnn": PEOPLE,
}
TELLS = {
    "census_dnn_feature_columns": ("feature_column.", "StringLookup, Hashing, Discretization"),
    "census_dnn_preprocessing": ("Hashing", r"keras.layers.Hashing\(num_bins\)"),
    "census_wide_deep": ("feature_column import feature_column", "docs/migrate.md"),
    "heart_functional_api": ("lr=lr", "learning_rate="),
    "resnet50_subclass": ("backend as K", "from keras import ops"),
    "dac_ctr": ("Normalizer", "keras.layers.Normalization"),
    "sqlflow_wide_deep_sequential": ("DenseFeatures", "has no feature columns"),
    "sqlflow_wide_deep_functional": ("ToNumber", "a column of numbers"),
}


def file_of(folder: Path, name: str) -> ModelFile:
    (folder / f"{name}.py").write_text(FILES[name])
    return resolve(f"{name}.custom_model", (folder,))


def test_each_kind_is_tried() -> None:
    assert STARTS.keys() | TELLS.keys() == FILES.keys()
    assert len(FILES) == 17


# What Keras 3 says of such files, to their users.
@pytest.mark.filterwarnings("ignore:(.|\n)*structure of .inputs. doesn't match")
@pytest.mark.filterwarnings("ignore:Argument `input_length` is deprecated")
@pytest.mark.filterwarnings("ignore:Layer 'flatten")
@pytest.mark.parametrize("name", STARTS)
def test_a_file_starts_as_it_is(tmp_path: Path, name: str) -> None:
    file = file_of(tmp_path, name)
    check_syntax(file)
    module, records = load(file), STARTS[name]
    columns = tuple(records) if isinstance(records, dict) else ()
    metadata = Metadata(format="csv", column_names=columns, column_types=("float64",) * len(columns))
    batch = BatchFeeder(module, "train", metadata).feed(records)
    assert batch is not None
    runner = ModelRunner(module, batch, RunnerSettings(swap_bytes_min=1 << 30))
    rows = {
        table.name: (np.ones((16, table.width), np.float32), np.zeros(len(runner.ids(batch)[table.name]), np.int32))
        for table in runner.tables
    }
    assert runner.train(batch, runner.initial_dense(), rows, step_seed=1).finite
    assert make_callbacks(module) == []
    if "learning_rate_scheduler" in FILES[name] or "LearningRateScheduler" in FILES[name]:
        assert (runner.rate(0), runner.rate(500)) == pytest.approx((0.1, 0.01))


@pytest.mark.parametrize("name", TELLS)
def test_a_message_names_the_line_and_what_to_write(tmp_path: Path, name: str) -> None:
    part, instead = TELLS[name]
    with pytest.raises(UserError, match=rf"lines? {numbered(FILES[name], part)}\b(.|\n)*{instead}"):
        check_syntax(file_of(tmp_path, name))


def test_the_diff_of_the_guide_removes_what_is_refused(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "migrate.md").read_text()
    diffs = re.findall(r"^```diff\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (diff,) = (each for each in diffs if "elasticdl.python" in each)
    before, after = (
        "".join(line[1:] + "\n" for line in diff.splitlines() if line[:1] in ("", " ", sign)) for sign in "-+"
    )
    with pytest.raises(UserError, match="3 names that are not there any more"):
        refuse_old_names(tmp_path / "net.py", ast.parse(before))
    refuse_old_names(tmp_path / "net.py", ast.parse(after))
