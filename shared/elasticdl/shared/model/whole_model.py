"""A whole version of a model in one file: all dense variables, and all rows of each table."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elasticdl.shared.storage import join

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
RowsFunction = Callable[[str, Ids], Floats]
"""(table name, ids int64[n]) -> their rows float32[n, width]."""

_DENSE, _TABLE = "dense", "table:"


def saved_models(storage: str) -> str:
    """URI of the folder for saved versions in a job's storage."""
    return join(storage, "best", "")


def saved_model_uri(storage: str, evaluation: int) -> str:
    """Where the version is saved that an evaluation has read."""
    return f"{saved_models(storage)}{evaluation:08d}.npz"


def write_model(file: Path, dense: Floats, rows_of: RowsFunction, sizes: Mapping[str, int]) -> None:
    """Write a version; ``dense``: float32, all dense variables in signature order."""
    arrays = {_DENSE: dense, **{_TABLE + name: rows_of(name, np.arange(size)) for name, size in sizes.items()}}
    with file.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]


def read_model(data: bytes) -> tuple[Floats, RowsFunction]:
    """The dense values of a version, and what gives its rows. Inverse of ``write_model``."""
    with np.load(io.BytesIO(data)) as loaded:
        arrays = dict(loaded)
    return arrays[_DENSE], lambda table, ids: arrays[_TABLE + table][ids]
