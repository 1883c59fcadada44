"""The models of the zoo as a worker loads them, with batches of their example data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from elasticdl.layers import adapting
from elasticdl.shared.data import DataSchema, Reader, ReaderOptions, RecordBlock, plan_sources
from elasticdl.shared.job.model_file import ModelFile, check_syntax
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import open_store
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.user.column_choice import ColumnChoice, Constants
from elasticdl.worker.model.user.default_feed import DefaultFeed, Ports
from elasticdl.worker.model.user.feeder import BatchFeeder
from elasticdl.worker.model.user.module import UserModule, load

ZOO = Path(__file__).resolve().parents[3] / "model_zoo"
SYMBOLS = {"mnist_subclass": "CustomModel"}
"""Models that are no ``custom_model``."""

Raw = tuple[RecordBlock, DataSchema]


def module_of(name: str, params: Mapping[str, object] | None = None) -> UserModule:
    """The model file ``name``, checked."""
    file = ModelFile(path=ZOO / f"{name}.py", symbol=SYMBOLS.get(name, "custom_model"))
    check_syntax(file)
    return load(file, params)


def read(data: Path, records: int) -> Raw:
    """The first records, as a worker reads them."""
    store = open_store(str(data))
    planned = plan_sources(str(data), ReaderOptions(), store)
    reader = Reader(store=store, sources=planned.sources, schema=planned.schema, index=planned.indices.__getitem__)
    return reader.read(Shard(source=0, start=0, end=records)), planned.schema


def with_feed(module: UserModule, raw: Raw, mode: str = "train") -> UserModule:
    """The module with the feed that a job gives it if it has none."""
    if module.has_feed:
        return module
    choice = ColumnChoice.of("", Constants(*map(module.value, Constants._fields)), module.path)
    ports = Ports.of(module.make_model(), raw[1].metadata, choice, module.path)
    return replace(module, default_feed=DefaultFeed(ports, raw[1].metadata, mode, choice, module.path))


def fed(module: UserModule, raw: Raw, mode: str = "train") -> Batch:
    """All records that were read, as one batch."""
    block, schema = raw
    batch = block.take(range(len(block)))
    records = batch.records if schema.format == "tfrecord" else batch.columns
    made = BatchFeeder(module, mode, schema.metadata).feed(records)
    assert made is not None
    return made


class ColumnAdapter:
    """Adapts layers to the columns of one block, as a job does to all of its data."""

    def __init__(self, raw: Raw) -> None:
        self._columns = raw[0].columns

    def adapt(self, layer: Any, columns: tuple[str, ...]) -> None:
        """See ``elasticdl.layers.adapt``."""
        (column,) = columns
        layer.adapt(tf.constant(self._columns[column].tolist()))


def adapt_to(raw: Raw) -> None:
    """Let ``adapt`` in model files use these records; ``adapting.use(None)`` ends that."""
    adapting.use(ColumnAdapter(raw))
