"""Whole versions of the model in the job's storage: one object each, written by one worker."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from elasticdl.shared.model.whole_model import RowsFunction, read_model, saved_model_uri, saved_models, write_model
from elasticdl.shared.storage import open_store
from elasticdl.worker.ports import Floats


class SavedModels:
    """The saved versions of a job's model."""

    def __init__(self, storage: str) -> None:
        self._store = open_store(storage)
        self._storage = storage

    def save(self, number: int, dense: Floats, rows_of: RowsFunction, sizes: Mapping[str, int], keep: int) -> None:
        """Save a version, and delete all but one of the others; ``keep``: the version that stays; 0: none."""
        uri = saved_model_uri(self._storage, number)
        with tempfile.TemporaryDirectory(prefix="elasticdl-best-") as folder:
            file = Path(folder, "model.npz")
            write_model(file, dense, rows_of, sizes)
            self._store.write(uri, file)
        for info in list(self._store.list(saved_models(self._storage))):
            if info.uri not in (uri, saved_model_uri(self._storage, keep)):
                self._store.delete(info.uri)

    def load(self, number: int) -> tuple[Floats, RowsFunction]:
        """The dense values of a version, and what gives its rows."""
        return read_model(self._store.read(saved_model_uri(self._storage, number)))
