"""The arguments of ``fit()`` as columns: arrays in any structure, each with the name of its place in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras.src.trainers.data_adapters.array_slicing import convert_to_sliceable  # Keras has no public name for it.

from elasticdl.shared.errors import UserError

Array = np.ndarray[Any, Any]
_SPARSE = ("RaggedTensor", "SparseTensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which columns of the data are what ``fit()`` was given: structures of the names of columns.

    Attributes:
        labels, weights: None if absent.
    """

    features: Any
    labels: Any = None
    weights: Any = None


def columns_of(name: str, given: Any) -> tuple[Any, dict[str, Array]]:
    """The columns of an argument of ``fit()``.

    Args:
        name: ``x``, ``y`` or ``sample_weight``.
        given: an array, or dicts, lists and tuples of arrays; None.

    Returns:
        The structure, with the name of a column in place of each array; and the columns.

    Raises:
        UserError: a part of it can't be kept as an array.
    """
    columns: dict[str, Array] = {}

    def structure(value: Any, path: str) -> Any:
        if value is None:
            return None
        if hasattr(value, "column_names") and hasattr(value, "to_pydict"):
            value = {column: value[column].to_numpy() for column in value.column_names}
        if isinstance(value, Mapping):
            return {key: structure(one, f"{path}.{key}") for key, one in value.items()}
        if isinstance(value, list | tuple):
            made = [structure(one, f"{path}.{place}") for place, one in enumerate(value)]
            return tuple(made) if isinstance(value, tuple) else made
        columns[path] = _as_array(value, path)
        return path

    return structure(given, name), columns


def laid_out(x: Any, y: Any, weights: Any) -> tuple[Layout, dict[str, Array]]:
    """The layout and all columns of the arguments ``x``, ``y`` and ``sample_weight`` of ``fit()``."""
    (features, first), (labels, second), (weighted, third) = (
        columns_of(name, given) for name, given in (("x", x), ("y", y), ("sample_weight", weights))
    )
    return Layout(features=features, labels=labels, weights=weighted), {**first, **second, **third}


def _as_array(value: Any, name: str) -> Array:
    """An array as ``fit()`` would convert it: floats as Keras' ``floatx``, a Series as a column."""
    if (kind := type(value).__name__) in _SPARSE:
        raise UserError(
            f"fit() is given a {kind} as {name}, whose records have no fixed size",
            hint="Give a dense tensor: to_tensor(), or tf.sparse.to_dense().",
        )
    try:
        sliceable: Any = convert_to_sliceable(value, target_backend="numpy")
        array = np.asarray(sliceable.convert_to_numpy(sliceable[:]))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"fit() is given {name} of type {type(value).__name__}, which can't be kept as an array",
            hint="Give NumPy arrays, pandas or Polars frames, Arrow tables, tensors, or a tf.data.Dataset.",
        ) from error
    if array.dtype == object:
        array = _texts(array)
    if array.ndim == 0 or array.dtype.kind not in "biufUSMm":
        raise UserError(f"fit() is given {name} with shape {array.shape} and type {array.dtype}, which has no records")
    return array


def _texts(array: Array) -> Array:
    """Objects as texts; bytes that are no UTF-8 stay bytes."""
    try:
        texts = [one.decode() if isinstance(one, bytes) else str(one) for one in array.flat]
    except UnicodeDecodeError:
        contents = [one if isinstance(one, bytes) else str(one).encode() for one in array.flat]
        return np.asarray(contents).reshape(array.shape)
    return np.asarray(texts).reshape(array.shape)
