"""What a preprocessing layer has learned from data, as bytes: Keras' own vocabularies, boundaries and variables."""

from __future__ import annotations

import hashlib
import json
import types
import zlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from elasticdl.shared.messages.compression import decompressed_object
from elasticdl.worker.model.user.class_names import ClassNames, LabelEncoder, classes_of, facts_of

_KEY_DIGITS = 16
_CLASSES = "classes"


def key_of(layer: Any, columns: tuple[str, ...]) -> str:
    """What stands for the state of a layer before it is adapted: equal layers of equal columns learn the same.

    Args:
        layer: the layer; its name does not count.
    """
    config = {name: value for name, value in layer.get_config().items() if name != "name"}
    text = json.dumps([type(layer).__name__, config, columns], sort_keys=True, default=_name)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def encode_state(layer: Any) -> bytes:
    """The state of an adapted layer."""
    return zlib.compress(json.dumps(_state(layer), default=list).encode())


def set_state(layer: Any, data: bytes) -> None:
    """Give a layer the state of one that had the same ``key_of``."""
    _set(layer, json.loads(decompressed_object(data)))


def classes_in_state(data: bytes) -> ClassNames:
    """The classes of labels, if this is the state of a ``LabelEncoder``; else empty."""
    return classes_of(json.loads(decompressed_object(data)).get(_CLASSES, ()))


def is_finite(layer: Any) -> bool:
    """Whether all numbers that a layer has learned are finite."""
    if isinstance(layer, LabelEncoder):
        return True
    return all(np.isfinite(array).all() for array in _variables(layer).values() if array.dtype.kind == "f")


def ends_with_empty_word(layer: Any) -> bool:
    """Whether the last word of a vocabulary is the empty text: Keras loses it when it loads the layer's file."""
    if isinstance(layer, keras.utils.FeatureSpace):
        return any(ends_with_empty_word(part) for part in layer.preprocessors.values())
    return isinstance(layer, keras.layers.StringLookup) and layer.get_vocabulary()[-1:] == [""]


def _state(layer: Any) -> dict[str, Any]:
    if isinstance(layer, LabelEncoder):
        return {_CLASSES: facts_of(layer.classes)}
    if isinstance(layer, keras.utils.FeatureSpace):
        parts = {name: _state(part) for name, part in layer.preprocessors.items() if hasattr(part, "adapt")}
        return {"parts": parts, "build": layer.get_build_config()}
    if hasattr(layer, "get_vocabulary"):
        vocabulary = [word if isinstance(word, str) else int(word) for word in layer.get_vocabulary()]
        return {"vocabulary": vocabulary, "variables": _listed(layer)}
    if isinstance(layer, keras.layers.Discretization):
        return {"boundaries": [float(each) for each in layer.bin_boundaries]}
    return {"build": layer.get_build_config(), "variables": _listed(layer)}


def _set(layer: Any, state: Mapping[str, Any]) -> None:
    if _CLASSES in state:
        layer.take(classes_of(state[_CLASSES]))
        return
    if "parts" in state:
        for name, part in state["parts"].items():
            _set(layer.preprocessors[name], part)
        layer.build_from_config(state["build"])
        return
    if "boundaries" in state:
        layer.bin_boundaries = state["boundaries"]
        return
    variables = {name: np.array(values, dtype) for name, (dtype, values) in state["variables"].items()}
    if "vocabulary" in state:
        layer.set_vocabulary(state["vocabulary"], *([variables["idf_weights"]] if variables else []))
        return
    if not layer.built:
        layer.build_from_config(state["build"])
    layer.load_own_variables(variables)


def _variables(layer: Any) -> dict[str, np.ndarray[Any, Any]]:
    store: dict[str, Any] = {}
    layer.save_own_variables(store)
    return {name: np.asarray(values) for name, values in store.items()}


def _listed(layer: Any) -> dict[str, tuple[str, list[Any]]]:
    """Name -> (type, values); the values of float32 come back with the same bits."""
    return {name: (str(array.dtype), array.tolist()) for name, array in _variables(layer).items()}


def _name(value: Any) -> Any:
    """Stands for a value of a configuration that JSON does not know: a function, a data type, an object of Keras."""
    name = str(getattr(value, "__qualname__", None) or getattr(value, "name", None) or type(value).__name__)
    code = getattr(value, "__code__", None)
    if code is None:
        return name
    return [name, _code(code), [_captured(cell) for cell in getattr(value, "__closure__", None) or ()]]


def _captured(cell: types.CellType) -> Any:
    """What a function captured; of a function its code alone, because a function may capture itself."""
    try:
        value = cell.cell_contents
    except ValueError:  # The variable has no value.
        return None
    code = getattr(value, "__code__", None)
    return value if code is None else _code(code)


def _code(code: types.CodeType) -> list[Any]:
    """What a function does, for functions that have the same name, as all lambdas of a file do."""
    return [code.co_code.hex(), code.co_names, [_constant(value) for value in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _code(value)
    # The order of a set differs between processes.
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
