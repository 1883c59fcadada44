"""Loads exports whose tables are Parquet files; see ADR 19."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.layers import serving
from elasticdl.layers.served import ServedEmbedding
from elasticdl.shared.exported.layout import MODEL
from elasticdl.shared.exported.lookup import open_tables
from elasticdl.shared.exported.reading import read_export
from elasticdl.shared.storage import join, open_store, to_uri

__all__ = ["ServedEmbedding", "load_model"]


def load_model(
    export: str | Path,
    *,
    cache_dir: str | Path | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
) -> Any:
    """Load a model that was exported with ``--export_tables=parquet``, for predictions.

    The tables are copied to local files once. A call of the model reads the rows of its batch from these files, so the
    model may be larger than the memory. It computes what the job's own evaluation does, and can't be trained.

    Args:
        export: the folder, local or ``s3://bucket/prefix``.
        cache_dir: folder for the local files, of the size of the tables. Later calls with the same export use the
            files that are there. None: a temporary folder, which is deleted with the model.
        custom_objects: classes and functions that the model uses and that are not registered with Keras.
        safe_mode: refuse a model with lambdas, as ``keras.models.load_model`` does.

    Returns:
        A ``keras.Model``, not compiled.

    Raises:
        ElasticDLError: the folder holds no such export, a file is missing or damaged, or the folder can't be read.
        OSError: the disk of the cache is full, for instance.
    """
    folder = to_uri(str(export))
    exported = read_export(folder)
    cache = Path(cache_dir) if cache_dir is not None else Path(tempfile.mkdtemp(prefix="elasticdl-tables-"))
    try:
        found = open_tables(folder, exported, cache)
        tables = LoadedTables([found[table.name] for table in exported.signature.tables])
        model = load_without_tables(join(folder, exported.version, MODEL), tables, custom_objects, safe_mode=safe_mode)
    except BaseException:
        if cache_dir is None:
            shutil.rmtree(cache, ignore_errors=True)
        raise
    if cache_dir is None:
        weakref.finalize(model, shutil.rmtree, cache, ignore_errors=True)
    return model


def load_without_tables(
    uri: str, tables: LoadedTables, custom_objects: Mapping[str, Any] | None, *, safe_mode: bool
) -> Any:
    """Load the file of a model without its tables.

    Returns:
        A ``keras.Model``, not compiled.
    """
    with tempfile.TemporaryDirectory(prefix="elasticdl-model-") as name, serving.constructing(tables):
        file = Path(name, MODEL)
        with open_store(uri).open(uri) as source, file.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        model = keras.models.load_model(file, custom_objects=custom_objects, compile=False, safe_mode=safe_mode)
    tables.are_loaded = True
    return model


class Rows(Protocol):
    """Gives the rows of one table."""

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Ids int64[n] -> their rows float32[n, width]."""


class LoadedTables:
    """Answers the embedding layers of one loaded model.

    Attributes:
        are_loaded: whether the layers know their numbers. Before that Keras may call them to build the model, and they
            answer with zeros.
    """

    plain = False

    def __init__(self, tables: Sequence[Rows]) -> None:
        self._tables = tables
        self.are_loaded = False

    @property
    def lookup(self) -> serving.Lookup:
        """This object."""
        return self

    def register(self, layer: Any) -> None:
        """XLA can't compile a call that reads files."""
        layer.supports_jit = False

    def serves(self, layer: Any) -> bool:  # noqa: ARG002
        """All tables are served that can be."""
        return True

    def keep_dense(self, layer: Any, reason: str) -> None:
        """The layer raises an error."""

    def rows(self, layer: Any, ids: Any) -> Any:
        """See ``serving.Lookup.rows``; also in a graph."""

        def find(flat: Any) -> Any:
            if not self.are_loaded:
                return np.zeros((flat.size, layer.output_dim), np.float32)
            return self._tables[layer.table_number].rows(flat)

        flat = tf.reshape(tf.cast(ids, tf.int64), [-1])
        rows = tf.numpy_function(find, [flat], tf.float32, stateful=False)
        shaped = tf.reshape(rows, tf.concat([tf.shape(ids), [layer.output_dim]], 0))
        return tf.ensure_shape(shaped, (*ids.shape, layer.output_dim))
