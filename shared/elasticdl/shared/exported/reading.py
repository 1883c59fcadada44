"""An export with tables in Parquet, read back: its description, its dense values, and its rows a file at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from elasticdl.shared.errors import UserError
from elasticdl.shared.exported.layout import DENSE, MARK, ExportedModel, ExportedTable
from elasticdl.shared.exported.parquet import positions_of, read_rows
from elasticdl.shared.storage import ObjectNotFoundError, display, join, open_store

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def is_export(folder: str) -> bool:
    """Whether a folder, given as URI, holds an export with tables in Parquet."""
    try:
        open_store(folder).info(join(folder, MARK))
    except ObjectNotFoundError:
        return False
    return True


def read_export(folder: str) -> ExportedModel:
    """The export in a folder."""
    uri = join(folder, MARK)
    return ExportedModel.from_json(_read(uri), uri)


def read_dense(folder: str, exported: ExportedModel) -> dict[str, Floats]:
    """Name -> values of each dense variable, float32 of its shape."""
    uri = join(folder, exported.version, DENSE)
    variables = exported.signature.dense
    try:
        flat = np.load(io.BytesIO(_read(uri)))
    except ValueError as error:
        raise _damaged(uri) from error
    if flat.dtype != np.float32 or flat.shape != (sum(variable.size for variable in variables),):
        raise _damaged(uri)
    stops = np.cumsum([variable.size for variable in variables], dtype=np.int64)
    parts = np.split(flat, stops[:-1]) if variables else []
    return {variable.name: part.reshape(variable.shape) for variable, part in zip(variables, parts, strict=True)}


def read_table(folder: str, table: ExportedTable, width: int) -> Iterator[tuple[Ids, Floats]]:
    """The trained rows of a table, a file at a time: ids int64[n], ascending in each file, rows float32[n, width]."""
    rows = 0
    for position, name in enumerate(table.files):
        if not name:
            continue
        uri = join(folder, name)
        ids, vectors = read_rows(_read(uri), width, display(uri))
        if (positions_of(ids, table.bits) != position).any():
            raise _damaged(uri)
        rows += ids.size
        yield ids, vectors
    if rows != table.rows:
        raise UserError(
            f"the files of table {table.name} in {display(folder)} have {rows:,} rows, not {table.rows:,}",
            hint="Export the model again.",
        )


def _read(uri: str) -> bytes:
    try:
        return open_store(uri).read(uri)
    except ObjectNotFoundError as error:
        raise UserError(f"{display(uri)}, a part of an exported model, is missing", hint="Export it again.") from error


def _damaged(uri: str) -> UserError:
    return UserError(f"{display(uri)}, a part of an exported model, is damaged", hint="Export it again.")
