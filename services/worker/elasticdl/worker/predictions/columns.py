"""Columns of predictions: from a model's outputs and the data's columns to an Arrow table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elasticdl.shared.data.ragged import ColumnValues, Ragged
from elasticdl.shared.errors import UserError

PREDICTION = "prediction"
"""The column of a model with one output; those of other models are called ``prediction_NAME``."""
Arrays = Mapping[str, ColumnValues]
"""Column -> values of each record, shape ``[records, ...]``."""


def output_columns(outputs: Any, names: Sequence[str], records: int) -> dict[str, npt.NDArray[Any]]:
    """Name the outputs of a batch.

    Args:
        outputs: an array, or a dict, list or tuple of structures, each array with one row for each record.
        names: of the model's outputs, if it gives a list of them; may be empty.

    Returns:
        Column -> array of shape ``[records, ...]``; a last dimension of 1 behind the records is left out.

    Raises:
        UserError: an output has no row for each record.
    """
    columns = {}
    for name, value in _leaves(outputs, PREDICTION, names):
        array = np.asarray(value)
        if array.dtype == object and not array.ndim:
            raise UserError(f"the output {name} of the model is a {type(value).__name__}, not a dense tensor")
        if not array.ndim or len(array) != records:
            shape = "x".join(map(str, array.shape)) or "()"
            raise UserError(f"the output {name} of the model has the shape {shape} for a batch of {records} records")
        array = array[:, 0] if array.shape[1:] == (1,) else array
        is_number = array.dtype.kind in "biufOSU"
        columns[name] = array.astype(np.float32) if array.dtype == np.float16 or not is_number else array
    return columns


def _leaves(outputs: Any, name: str, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    if isinstance(outputs, Mapping):
        parts = [(str(key), value) for key, value in outputs.items()]
    elif isinstance(outputs, (list, tuple)):
        known = names if len(names) == len(outputs) else [str(number) for number in range(len(outputs))]
        parts = list(zip(known, outputs, strict=True))
    else:
        yield name, outputs
        return
    for key, value in parts:
        yield from _leaves(value, f"{name}_{key}", ())


def concatenated(batches: Sequence[Arrays]) -> dict[str, ColumnValues]:
    """Columns of several batches, one after the other; all have the same columns."""
    return {name: _joined([batch[name] for batch in batches]) for name in batches[0]}


def _joined(parts: Sequence[ColumnValues]) -> ColumnValues:
    lists = [part for part in parts if isinstance(part, Ragged)]
    if not lists:
        return np.concatenate([part for part in parts if not isinstance(part, Ragged)])
    return Ragged.joined(lists)


def table(columns: Arrays) -> pa.Table:
    """An Arrow table; vectors and matrices become lists of a fixed size, ragged columns lists.

    Raises:
        UserError: two columns have the same name, or a column can't be written.
    """
    try:
        return pa.table({name: _arrow(values) for name, values in columns.items()})
    except pa.ArrowException as error:
        raise UserError(f"the predictions can't be written: {error}") from error


def _arrow(values: ColumnValues) -> pa.Array:
    if isinstance(values, Ragged):
        return pa.ListArray.from_arrays(pa.array(values.splits, pa.int32()), _flat(values.values))
    array = _flat(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def _flat(values: npt.NDArray[Any]) -> pa.Array:
    if values.dtype.kind not in "OSU":
        return pa.array(np.ascontiguousarray(values))
    array = pa.array(values.tolist())
    if not pa.types.is_binary(array.type):
        return array
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return array
