"""Reads the weights of a ``.keras`` file or of a SavedModel, with the names of their variables."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.utils.naming import reset_uids
from numpy.typing import NDArray
from tensorflow.core.protobuf import trackable_object_graph_pb2 as graph_pb

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectNotFoundError, display, join, open_store, scheme_of
from elasticdl.shared.storage.uris import local_path
from elasticdl.worker.model.initial.variable_names import named_variables, renumbered
from elasticdl.worker.model.user.class_names import CLASSES_PATH, ClassNames, classes_in, classes_of
from elasticdl.worker.model.user.module import LoadError, UserModule

Weights = dict[str, NDArray[np.float32]]
"""Name -> values of a variable."""

_KERAS = ".keras"
_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VARIABLES = "variables"
"""Folder of the variables in a SavedModel, prefix of its files, and what Keras calls them below the root."""
_EXPORTED = "_all_variables"
"""A child of the root in a SavedModel of ``keras.Model.export``, which lists each variable twice."""
_NO_WEIGHTS = ("optimizer", "keras_api")
"""Children of the root with the variables of optimizer and metrics."""


def read_keras_file(uri: str, module: UserModule, new: Any, make: Callable[[], Any]) -> Weights:
    """The weights of a ``.keras`` file, by the names of ``named_variables``.

    Args:
        new: the ``keras.Model`` that takes the weights: numbers in the names of layers are adapted to it.
        make: makes the model of the model file with all its tables, for a file of which only the weights can be read.

    Raises:
        UserError: it is no model, or has classes that are not in the model file.
    """
    with _local(uri) as path:  # Outside of a census, embedding layers have their own tables.
        reset_uids()
        try:
            model = module.load_model(path, shown=display(uri))
        except LoadError as error:
            weights = error.weights
            if weights is None:
                raise
            model = make()
            weights.load_into(model, module.path)
    named = named_variables(model, renumbered(model, new))
    return {name: _array(variable) for name, variable in named.items() if _is_float(variable)}


def read_classes(uri: str) -> ClassNames:
    """The classes of labels in a ``.keras`` file or a SavedModel; empty: it has none, or ``uri`` is empty."""
    if not uri:
        return ()
    if uri.endswith(_KERAS):
        with _local(uri) as path:
            return classes_in(path)
    try:
        store = open_store(uri)
        return classes_of(json.loads(store.read(join(uri, CLASSES_PATH))))
    except ObjectNotFoundError:
        return ()


def read_saved_model(uri: str) -> Weights:
    """The weights of a SavedModel by the names that they had when they were made; those of optimizers are left out.

    Raises:
        UserError: they are no SavedModel, or names are not unique.
    """
    with _local(uri, _VARIABLES) as folder:
        try:
            reader = tf.train.load_checkpoint(str(folder / _VARIABLES))
            keys = _keys(reader.get_tensor(_GRAPH_KEY))
        except (tf.errors.OpError, ValueError, KeyError) as error:
            raise UserError(f"{display(uri)} can't be read as a SavedModel: it has no complete variables") from error
        repeated = min((name for name, times in Counter(keys.values()).items() if times > 1), default="")
        if repeated:
            raise UserError(
                f"{display(uri)} has several variables with the name {repeated}, so they can't be matched by name",
                hint="Give the .keras file of this model instead.",
            )
        types = reader.get_variable_to_dtype_map()
        floats = {name: key for key, name in keys.items() if types[key].is_floating}
        try:
            return {name: np.asarray(reader.get_tensor(key), np.float32) for name, key in floats.items()}
        except tf.errors.OpError as error:
            raise UserError(f"{display(uri)} is damaged: {error.message}") from error


def _keys(graph: bytes) -> dict[str, str]:
    """Key of each weight in a checkpoint -> name of the variable."""
    nodes = graph_pb.TrackableObjectGraph.FromString(graph).nodes
    children = {child.local_name: child.node_id for child in nodes[0].children}
    roots = [_VARIABLES] if _EXPORTED in children else [name for name in children if name not in _NO_WEIGHTS]
    left = [children[name] for name in roots]
    seen = {0, *left}  # The way back to the root leads to the optimizer.
    keys: dict[str, str] = {}
    while left:
        node = nodes[left.pop()]
        keys |= {one.checkpoint_key: one.full_name for one in node.attributes if one.full_name}
        new = {child.node_id for child in node.children} - seen
        seen |= new
        left += new
    return keys


@contextmanager
def _local(uri: str, name: str = "") -> Iterator[Path]:
    """A file, or all files of a folder in it, on the local disk; what is in object storage is copied for a while."""
    if scheme_of(uri) == "file":
        yield local_path(uri) / name
        return
    with tempfile.TemporaryDirectory(prefix="elasticdl-model-") as copies:
        store, folder = open_store(uri), Path(copies)
        sources = [info.uri for info in store.list(join(uri, name, ""))] if name else [uri]
        for source in sources:
            with store.open(source) as reader, (folder / source.rpartition("/")[2]).open("wb") as copy:
                shutil.copyfileobj(reader, copy)
        yield folder if name else folder / uri.rpartition("/")[2]


def _array(variable: Any) -> NDArray[np.float32]:
    return np.asarray(keras.ops.convert_to_numpy(variable.value), np.float32)


def _is_float(variable: Any) -> bool:
    return bool(keras.backend.is_float_dtype(keras.backend.standardize_dtype(variable.dtype)))
