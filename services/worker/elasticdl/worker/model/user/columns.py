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
from elasticdl.shared.data.ragged import Ragged
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.aligned import aligned_empty
from elasticdl.worker.model.tensors import lend, lend_copy

ColumnArrays = Mapping[str, NDArray[Any] | Ragged]
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
        self._ragged: dict[str, tuple[Any, str]] = {}
        """Key -> TensorFlow type of the elements, and the column's name."""

    def pack(self, columns: ColumnArrays) -> dict[str, Any]:
        """A tensor (columns, records, ...) for each type, and a ragged tensor (records, any) for each ragged column."""
        if not self._order:
            self._learn(columns)
        if list(columns) != self._order and set(self._order) != columns.keys():
            raise UserError(f"a batch has the columns {sorted(columns)}, the first one had {sorted(self._order)}")
        if isinstance(columns, ColumnBatch) and self._is_stacked(columns):
            dense = {key: lend_copy(stack.values) for key, stack in zip(self._packs, columns.stacks, strict=True)}
        else:
            dense = {key: _stack(pack, columns) for key, pack in self._packs.items()}
        return {key: _ragged(dtype, columns[name]) for key, (dtype, name) in self._ragged.items()} | dense

    @property
    def has_ragged(self) -> bool:
        """Whether a column is ragged."""
        return bool(self._ragged)

    def signature(self) -> dict[str, Any]:
        """The types of what ``pack`` gives, for any number of records."""
        ragged = {
            key: tf.RaggedTensorSpec([None, None], dtype, 1, tf.int64) for key, (dtype, _) in self._ragged.items()
        }
        return ragged | {
            key: tf.TensorSpec([len(pack.names), None, *pack.shape], pack.dtype) for key, pack in self._packs.items()
        }

    def unpack(self, packed: Mapping[str, Any]) -> dict[str, Any]:
        """Each column as a tensor (records, ...), in the order of the data; a dict of the caller's own."""
        found: dict[str, Any] = {name: packed[key] for key, (_, name) in self._ragged.items()}
        for key, pack in self._packs.items():
            found.update(zip(pack.names, tf.unstack(packed[key], len(pack.names)), strict=True))
        return {name: found[name] for name in self._order}

    def _is_stacked(self, columns: ColumnBatch) -> bool:
        """Whether the columns lie side by side as they are to be packed; strings are converted one by one."""
        packs = self._packs.values()
        return len(packs) == len(columns.stacks) and all(
            stack.names == pack.names and stack.values.dtype == pack.numpy and pack.numpy.kind not in "OSU"
            for pack, stack in zip(packs, columns.stacks, strict=True)
        )

    def _learn(self, columns: ColumnArrays) -> None:
        self._order = list(columns)
        names: dict[str, list[tuple[str, NDArray[Any]]]] = {}
        for name, column in columns.items():
            if isinstance(column, Ragged):
                self._ragged[f"{name}[ragged]"] = _tensor_type(column.values), name
            else:
                names.setdefault(f"{_tensor_type(column).name}{list(column.shape[1:])}", []).append((name, column))
        for key, own in names.items():
            first = own[0][1]
            self._packs[key] = _Pack(
                dtype=_tensor_type(first),
                shape=first.shape[1:],
                numpy=first.dtype,
                names=tuple(name for name, _ in own),
            )


def _tensor_type(values: NDArray[Any]) -> Any:
    return tf.string if values.dtype.kind in "OSU" else tf.as_dtype(values.dtype)


def _ragged(dtype: Any, lists: NDArray[Any] | Ragged) -> Any:
    assert isinstance(lists, Ragged)
    if dtype == tf.string:
        values = tf.constant(lists.values.tolist(), tf.string, lists.values.shape)
    else:
        values = lend_copy(lists.values)
    return tf.RaggedTensor.from_row_splits(values, lend_copy(lists.splits), validate=False)


def _stack(pack: _Pack, columns: ColumnArrays) -> Any:
    dense = [(name, column) for name in pack.names if not isinstance(column := columns[name], Ragged)]
    shape = (len(pack.names), len(dense[0][1]), *pack.shape)
    if pack.dtype == tf.string:
        return tf.constant([column.tolist() for _, column in dense], tf.string, shape)
    stacked = aligned_empty(shape, pack.numpy)
    for row, (name, column) in zip(stacked, dense, strict=True):
        if column.dtype != stacked.dtype and not np.can_cast(column.dtype, stacked.dtype, "same_kind"):
            raise UserError(
                f"column {name!r} is {column.dtype} in this batch and was {pack.dtype.name} in the first one",
                hint="Give the column one type in all files.",
            )
        row[:] = column
    return lend(stacked)
