"""Whole versions of the model in the job's storage: one object each, written by one worker."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from elasticdl.shared.storage import join, open_store
from elasticdl.worker.ports import Floats, Ids

_DENSE, _TABLE = "dense", "table:"
RowsFunction = Callable[[str, Ids], Floats]


class SavedModels:
    """The saved versions of a job's model.

    Args:
        storage: URI of the job's storage.
    """

    def __init__(self, storage: str) -> None:
        self._store = open_store(storage)
        self._folder = join(storage, "best", "")

    def uri(self, number: int) -> str:
        """Where a version is.

        Args:
            number: the evaluation that read it.
        """
        return f"{self._folder}{number:08d}.npz"

    def save(self, number: int, dense: Floats, rows_of: RowsFunction, sizes: Mapping[str, int], keep: int) -> None:
        """Save a version, and delete all but one of the others.

        Args:
            number: the evaluation that read it.
            dense: float32, all dense variables in signature order.
            rows_of: gives rows of a table.
            sizes: table -> number of its rows.
            keep: the version that stays; 0: none.

        Raises:
            PermanentError, TransientError: the storage can't be written.
        """
        arrays = {_DENSE: dense, **{_TABLE + name: rows_of(name, np.arange(size)) for name, size in sizes.items()}}
        with tempfile.TemporaryDirectory(prefix="elasticdl-best-") as folder:
            file = Path(folder, "model.npz")
            np.savez(file, **arrays)  # type: ignore[arg-type]
            self._store.write(self.uri(number), file)
        for info in list(self._store.list(self._folder)):
            if info.uri not in (self.uri(number), self.uri(keep)):
                self._store.delete(info.uri)

    def load(self, number: int) -> tuple[Floats, RowsFunction]:
        """The dense values of a version, and what gives its rows.

        Raises:
            PermanentError, TransientError: the storage can't be read.
        """
        with np.load(io.BytesIO(self._store.read(self.uri(number)))) as loaded:
            arrays = dict(loaded)
        return arrays[_DENSE], lambda table, ids: arrays[_TABLE + table][ids]
