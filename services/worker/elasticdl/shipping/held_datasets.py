"""Datasets that callbacks hold or name, such as examples that they predict at the end of each epoch.

A ``tf.data.Dataset`` is a graph of the process that made it. Its elements can travel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.shared.errors import UserError

_BYTES_MAX = 256 << 20


def reduce(dataset: Any) -> tuple[Any, ...]:
    """What pickle needs to make a finite dataset again: one pass over its elements, in the order of this pass.

    Raises:
        UserError: it has no end, more than 256 MiB, or elements that are no dense tensors.
    """
    kinds = tf.nest.flatten(dataset.element_spec)
    if not all(isinstance(kind, tf.TensorSpec) for kind in kinds):
        raise _refused("has elements that are no dense tensors")
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise _refused("has no end")
    rows, size = [], 0
    for element in dataset:
        row = [tensor.numpy() for tensor in tf.nest.flatten(element)]
        size += sum(np.asarray(value).nbytes for value in row)
        if size > _BYTES_MAX:
            raise _refused(f"has more than {_BYTES_MAX >> 20} MiB")
        rows.append(row)
    shapes = [None if kind.shape.rank is None else tuple(kind.shape) for kind in kinds]
    names = tf.nest.map_structure(lambda kind: kind.dtype.name, dataset.element_spec)
    return _make, (rows, names, shapes)


def _make(rows: list[list[Any]], names: Any, shapes: list[tuple[int | None, ...] | None]) -> Any:
    kinds = [tf.TensorSpec(shape, name) for shape, name in zip(shapes, tf.nest.flatten(names), strict=True)]
    elements = tf.data.Dataset.from_generator(lambda: (tuple(row) for row in rows), output_signature=tuple(kinds))
    elements = elements.apply(tf.data.experimental.assert_cardinality(len(rows)))
    return elements.map(lambda *parts: tf.nest.pack_sequence_as(names, list(parts)), num_parallel_calls=1)


def _refused(why: str) -> UserError:
    return UserError(
        f"a tf.data.Dataset that a callback or the model refers to can't be sent to the workers: it {why}",
        hint="Give the callback a few examples as arrays, or a part of the dataset: dataset.take(8).",
    )
