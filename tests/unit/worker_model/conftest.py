"""Model files written on the spot, and a ps that is a dict of full tables."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.shared.job.model_file import ModelFile
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.runner import ModelRunner, RunnerSettings
from elasticdl.worker.model.user.feeder import BatchFeeder
from elasticdl.worker.model.user.module import UserModule, load

HEADER = """
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

def loss(labels, predictions):
    return keras.losses.binary_crossentropy(labels, predictions)

def optimizer():
    return keras.optimizers.SGD(0.1)

def feed_batch(records, mode, metadata):
    labels = records.pop("label")
    return records, labels
"""

RECOMMENDER = """
def custom_model(users=1000, items=50, width=4):
    user = keras.Input((), dtype="int64", name="user")
    item = keras.Input((3,), dtype="int64", name="item")
    dense = keras.Input((5,), name="numbers")
    user_row = layers.Embedding(users, width, name="user_table")(user)
    item_rows = layers.Flatten()(layers.Embedding(items, width, name="item_table")(item))
    x = layers.Concatenate()([user_row, item_rows, dense])
    x = layers.Dense(8, activation="relu")(x)
    return keras.Model({"user": user, "item": item, "numbers": dense}, layers.Dense(1, activation="sigmoid")(x))
"""

WriteModule = Callable[..., UserModule]


@pytest.fixture
def write_module(tmp_path: Path) -> WriteModule:
    """Write a model file (after a header with loss, optimizer and feed_batch) and load it."""

    def write(body: str, *, name: str = "model", **params: object) -> UserModule:
        path = tmp_path / f"{name}.py"
        path.write_text(HEADER + textwrap.dedent(body))
        return load(ModelFile(path=path), params)

    return write


def columns(count: int = 16, seed: int = 0) -> dict[str, Any]:
    """Raw columns of the recommender's records."""
    random = np.random.default_rng(seed)
    return {
        "user": random.integers(0, 1000, count),
        "item": random.integers(0, 50, (count, 3)),
        "numbers": random.normal(size=(count, 5)).astype(np.float32),
        "label": random.integers(0, 2, (count, 1)).astype(np.float32),
    }


def fed(module: UserModule, raw: Any, mode: str = "train") -> Batch:
    """One batch through a fresh feeder."""
    batch = BatchFeeder(module, mode, None).feed(raw)
    assert batch is not None
    return batch


def runner_of(module: UserModule, raw: Any, **settings: Any) -> tuple[ModelRunner, Batch]:
    """A runner that serves every embedding, and the batch it was built with."""
    batch = fed(module, raw)
    return ModelRunner(module, batch, RunnerSettings(**({"swap_bytes_min": 0} | settings))), batch


class Tables:
    """Full tables by name, served as the worker would pull them."""

    def __init__(self, runner: ModelRunner, rows: int = 1000, seed: int = 7) -> None:
        random = np.random.default_rng(seed)
        self.runner = runner
        self.full = {
            table.name: random.normal(size=(table.input_dim or rows, table.width)).astype(np.float32)
            for table in runner.tables
        }
        self.unique: dict[str, Any] = {}

    def pull(self, batch: Batch, *, training: bool = True) -> dict[str, Any]:
        """Unique rows and inverse indices for a batch."""
        pulled = {}
        for name, ids in self.runner.ids(batch, training=training).items():
            unique, inverse = np.unique(ids, return_inverse=True)
            self.unique[name] = unique
            pulled[name] = (self.full[name][unique], inverse.astype(np.int32))
        return pulled

    def scattered(self, name: str, gradient: Any) -> Any:
        """A row gradient as a gradient of the full table."""
        full = np.zeros_like(self.full[name])
        full[self.unique[name]] = gradient
        return full
