"""Columns of a batch on their way into a traced function.

To hand TensorFlow forty small tensors costs more than all that a feed does with them, so columns of one type travel as
one tensor and are taken apart again inside the function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.data.blocks import ColumnBatch
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.aligned import aligned_empty
from elasticdl.worker.model.tensors import lend, lend_copy

ColumnArrays = Mapping[str, NDArray[Any]]
"""Column name -> values of each record (records, ...)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pack:
    """Columns of one type and shape, and their names."""

    dtype: Any
    shape: tuple[int, ...]
    numpy: np.dtype[Any]
    names: tuple[str, ...]


class ColumnPacker:
    """Packs the columns of batches that all have the names and types of the first one."""

    def __init__(self) -> None:
        self._order: list[str] = []
        self._packs: dict[str, _Pack] = {}

    def pack(self, columns: ColumnArrays) -> dict[str, Any]:
        """A tensor (columns, records, ...) for each type.

        Raises:
            UserError: the columns or a type are not those of the first batch.
        """
        if not self._order:
            self._learn(columns)
        if isinstance(columns, ColumnBatch) and self._is_stacked(columns):
            return {key: lend_copy(stack.values) for key, stack in zip(self._packs, columns.stacks, strict=True)}
        if set(self._order) != columns.keys():
            raise UserError(f"a batch has the columns {sorted(columns)}, the first one had {sorted(self._order)}")
        return {key: _stack(pack, columns) for key, pack in self._packs.items()}

    def signature(self) -> dict[str, Any]:
        """The types of what ``pack`` gives, for any number of records."""
        return {
            key: tf.TensorSpec([len(pack.names), None, *pack.shape], pack.dtype) for key, pack in self._packs.items()
        }

    def unpack(self, packed: Mapping[str, Any]) -> dict[str, Any]:
        """Each column as a tensor (records, ...), in the order of the data; a dict of the caller's own."""
        found: dict[str, Any] = {}
        for key, pack in self._packs.items():
            found.update(zip(pack.names, tf.unstack(packed[key], len(pack.names)), strict=True))
        return {name: found[name] for name in self._order}

    def _is_stacked(self, columns: ColumnBatch) -> bool:
        """Whether the columns lie side by side as they are to be packed; strings are converted one by one."""
        packs = self._packs.values()
        return len(packs) == len(columns.stacks) and all(
            stack.names == pack.names and stack.values.dtype == pack.numpy and pack.dtype != tf.string
            for pack, stack in zip(packs, columns.stacks, strict=True)
        )

    def _learn(self, columns: ColumnArrays) -> None:
        self._order = list(columns)
        names: dict[str, list[str]] = {}
        for name, column in columns.items():
            dtype = tf.string if column.dtype.kind in "OSU" else tf.as_dtype(column.dtype)
            names.setdefault(f"{dtype.name}{list(column.shape[1:])}", []).append(name)
        for key, own in names.items():
            first = columns[own[0]]
            dtype = tf.string if first.dtype.kind in "OSU" else tf.as_dtype(first.dtype)
            self._packs[key] = _Pack(dtype=dtype, shape=first.shape[1:], numpy=first.dtype, names=tuple(own))


def _stack(pack: _Pack, columns: ColumnArrays) -> Any:
    shape = (len(pack.names), len(columns[pack.names[0]]), *pack.shape)
    if pack.dtype == tf.string:
        return tf.constant([columns[name].tolist() for name in pack.names], tf.string, shape)
    stacked = aligned_empty(shape, pack.numpy)
    for row, name in zip(stacked, pack.names, strict=True):
        column = columns[name]
        if column.dtype != stacked.dtype and not np.can_cast(column.dtype, stacked.dtype, "same_kind"):
            raise UserError(
                f"column {name!r} is {column.dtype} in this batch and was {pack.dtype.name} in the first one",
                hint="Give the column one type in all files; empty integer cells turn a column into floats.",
            )
        row[:] = column
    return lend(stacked)
