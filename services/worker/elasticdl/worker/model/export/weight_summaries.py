"""The weights at the end of an epoch as a TensorBoard event file: histograms, and the graphs of the model.

TensorBoard's page opens with the graph of operations, and shows that of the layers as "Conceptual graph". Tags, buckets
and the format of the second graph are those of Keras' ``TensorBoard`` callback. The package ``tensorboard`` is not
needed: TensorFlow has the messages.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.storage.tfrecord_frame import frame
from elasticdl.worker.model.dense import Float32Array
from elasticdl.worker.model.export.export import ROWS_PER_READ, RowsFunction
from elasticdl.worker.model.runner import ModelRunner

BUCKETS = 30
ROWS_MAX = 1 << 16
"""Rows of a table whose norms are counted; of a larger table they are spread evenly over its ids."""
GRAPH_BYTES_MAX = 1 << 20
"""Largest description of a model's layers, or operations, that is written: a larger one would slow TensorBoard down."""
CONSTANT_BYTES_MAX = 1 << 10
"""Larger values of constants are left out of the graph of operations, as TensorBoard leaves them out of its page."""

_DRAWN = ("name", "dtype", "input_layers", "output_layers")
"""Settings of a layer that TensorBoard reads. Others may be long, such as vocabularies."""
_FILE_VERSION = "brain.Event:2"


def encode(runner: ModelRunner, dense: Float32Array, rows_of: RowsFunction, epoch: int, *, graph: bool) -> bytes:
    """The content of an event file.

    Args:
        epoch: that has ended, from 0.
        graph: whether the graphs are written, too. A subclassed model has none of layers, one that runs uncompiled
            none of operations, and large graphs are left out.

    Returns:
        A histogram of each dense variable (``dense/kernel/histogram``), and of the lengths of the rows of each table
        whose number of ids is known (``embedding/row_norms/histogram``).
    """
    values, start = [], 0
    for variable in runner.dense.specs:
        size = int(np.prod(variable.shape, dtype=np.int64))
        values.append(_histogram(f"{variable.name}/histogram", dense[start : start + size]))
        start += size
    for table in runner.tables:
        if table.input_dim:
            values.append(_histogram(f"{table.name}/row_norms/histogram", _norms(table.name, table.input_dim, rows_of)))
    event = tf.compat.v1.Event
    events = [event(wall_time=time.time(), file_version=_FILE_VERSION)]
    if graph and (operations := _operations(runner)) is not None:
        events.append(event(wall_time=time.time(), graph_def=operations))
    if graph and (described := _graph(runner.built.model)) is not None:
        events.append(event(wall_time=time.time(), step=0, summary=tf.compat.v1.Summary(value=[described])))
    events.append(event(wall_time=time.time(), step=epoch, summary=tf.compat.v1.Summary(value=values)))
    return b"".join(frame(each.SerializeToString()) for each in events)


def _norms(table: str, rows: int, rows_of: RowsFunction) -> NDArray[np.float64]:
    """Euclidean lengths of the rows of a table, float64[at most ROWS_MAX]."""
    count = min(rows, ROWS_MAX)
    # Integers, because float64 can't tell ids of a table with 2**53 of them and more apart.
    ids = np.array([place * (rows - 1) // max(count - 1, 1) for place in range(count)], np.int64)
    parts = [rows_of(table, ids[start : start + ROWS_PER_READ]) for start in range(0, ids.size, ROWS_PER_READ)]
    norms: NDArray[np.float64] = np.linalg.norm(np.concatenate(parts).astype(np.float64), axis=1)
    return norms


def _histogram(tag: str, data: NDArray[Any]) -> Any:
    """A summary of float64[BUCKETS, 3]: left edge, right edge and count of each bucket."""
    data = data.astype(np.float64)
    data = data[np.isfinite(data)]
    low, high = (data.min(), data.max()) if data.size else (0.0, 0.0)
    edges = np.linspace(low, high, BUCKETS + 1)
    if low < high:
        places = np.floor((data - low) / ((high - low) / BUCKETS)).astype(np.int64)
        counts = np.bincount(np.minimum(places, BUCKETS - 1), minlength=BUCKETS)
    else:
        counts = np.array([0] * (BUCKETS - 1) + [data.size])
    buckets = np.stack([edges[:-1], edges[1:], counts], axis=1)
    return _value(tag, tf.make_tensor_proto(buckets, dtype=tf.float64), "histograms", b"")


def _operations(runner: ModelRunner) -> bytes | None:
    """The operations with which the model predicts, a ``GraphDef``; None: it runs uncompiled, or has too many."""
    traced = runner.step.traced("predict", runner.example.spec)
    if traced is None:
        return None
    definition = traced.graph.as_graph_def()
    for node in (*definition.node, *(each for one in definition.library.function for each in one.node_def)):
        if "value" in node.attr and node.attr["value"].ByteSize() > CONSTANT_BYTES_MAX:
            del node.attr["value"]
    content: bytes = definition.SerializeToString()
    return content if len(content) <= GRAPH_BYTES_MAX else None


def _graph(model: Any) -> Any | None:
    """The description of a model's layers; None: it has no fixed graph, or its description is too large."""
    if type(model).__name__ not in ("Sequential", "Functional"):
        return None
    try:
        text = json.dumps(_outline(json.loads(model.to_json())))
    except (TypeError, ValueError, NotImplementedError):
        return None
    if len(text) > GRAPH_BYTES_MAX:
        return None
    return _value("keras", tf.make_tensor_proto(text, dtype=tf.string), "graph_keras_model", b"1")


def _outline(layer: Mapping[str, Any]) -> dict[str, Any]:
    """What TensorBoard draws of a layer or model: it can't read arguments that are numbers, as those of operations."""
    config = layer.get("config") or {}
    kept = {key: config[key] for key in _DRAWN if key in config}
    if "layers" in config:
        kept["layers"] = [_outline(each) for each in config["layers"]]
    outline = {"class_name": layer.get("class_name"), "name": layer.get("name"), "config": kept}
    if (nodes := layer.get("inbound_nodes")) is not None:  # The layers of a Sequential have none: their order counts.
        outline["inbound_nodes"] = [{"args": list(_tensors_in(node)), "kwargs": {}} for node in nodes]
    return outline


def _tensors_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """The tensors in the arguments of a call."""
    if isinstance(value, Mapping):
        if value.get("class_name") == "__keras_tensor__":
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _tensors_in(each)


def _value(tag: str, tensor: Any, plugin: str, content: bytes) -> Any:
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = plugin
    metadata.plugin_data.content = content
    return tf.compat.v1.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
