"""Columns of the training data as a ``tf.data.Dataset`` that a layer is adapted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.data.ragged import ColumnValues, Ragged

ColumnBlocks = Callable[[], Iterator[Mapping[str, ColumnValues]]]
"""Reads all records of the training data once: the columns of some records at a time, in the order of the data."""


@dataclass(slots=True)
class ColumnDataset:
    """Datasets of columns.

    Attributes:
        error: what reading has raised. TensorFlow raises an error of its own, with the text of this one.
    """

    blocks: ColumnBlocks
    error: Exception | None = field(default=None, init=False)

    def stacked(self, columns: tuple[str, ...]) -> Any:
        """A dataset of batches (records, columns); see ``elasticdl.layers.adapt``."""
        return self._dataset(lambda block: _stacked([block[name] for name in columns]))

    def named(self, columns: tuple[str, ...]) -> Any:
        """A dataset of dicts: column -> batch (records, 1)."""
        return self._dataset(lambda block: {name: _stacked([block[name]]) for name in columns})

    def _dataset(self, batch: Callable[[Mapping[str, ColumnValues]], Any]) -> Any:
        first = batch(next(self.blocks()))
        signature = tf.nest.map_structure(lambda values: tf.TensorSpec([None, *values.shape[1:]], _type(values)), first)

        def generate() -> Iterator[Any]:
            try:
                yield from map(batch, self.blocks())
            except Exception as error:
                self.error = error
                raise

        return tf.data.Dataset.from_generator(generate, output_signature=signature)


def _stacked(columns: list[ColumnValues]) -> NDArray[Any]:
    arrays = [column.values if isinstance(column, Ragged) else column for column in columns]
    values = np.stack(arrays, 1) if len(arrays) > 1 else arrays[0]
    values = values.reshape(len(values), -1)
    # A generator has to give text as bytes.
    return tf.constant(values.tolist(), tf.string, values.shape).numpy() if _type(values) == tf.string else values


def _type(values: NDArray[Any]) -> Any:
    return tf.string if values.dtype.kind in "OSU" else tf.as_dtype(values.dtype)
