"""Tables as files: Parquet, CSV and TFRecord."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage.tfrecord_frame import frame

Encode = Callable[[pa.Table], bytes]
"""The content of a file that holds a table."""


def encode(table: pa.Table, data_format: str) -> bytes:
    """The content of a file."""
    return _ENCODERS[data_format](table)


def _parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file)
    return file.getvalue()


def _csv(table: pa.Table) -> bytes:
    """Vectors become a column for each element: ``prediction_0``, ``prediction_1``."""
    columns: dict[str, pa.ChunkedArray] = {}
    for name in table.column_names:
        columns.update(_csv_columns(name, table[name]))
    file = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(columns), file)
    return file.getvalue()


def _csv_columns(name: str, values: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    if pa.types.is_fixed_size_list(values.type) and not pa.types.is_nested(values.type.value_type):
        for place in range(values.type.list_size):
            yield f"{name}_{place}", pa.compute.list_element(values, place)
    elif pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
        raise UserError(
            f"CSV can't hold the column {name}, which is of the type {values.type}",
            hint="Write Parquet, with --output_format=parquet.",
        )
    else:
        yield name, values


def _tfrecord(table: pa.Table) -> bytes:
    """One ``tf.train.Example`` for each record; matrices are flattened."""
    from elasticdl.worker.model.prediction.outputs import serialized  # By now TensorFlow is imported.

    columns = {name: _leaves(table[name]) for name in table.column_names}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return b"".join(frame(serialized(row)) for row in rows)


def _leaves(values: pa.ChunkedArray) -> Iterator[list[Any]]:
    return (list(_flattened(value)) for value in values.to_pylist())


def _flattened(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from _flattened(each)
    elif value is not None:
        yield value


_ENCODERS: Mapping[str, Encode] = MappingProxyType({"parquet": _parquet, "csv": _csv, "tfrecord": _tfrecord})
