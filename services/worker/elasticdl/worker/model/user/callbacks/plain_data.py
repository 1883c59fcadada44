"""Converts plain data to JSON values and back: what callbacks keep from one epoch to the next."""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import Any

import numpy as np


class NotPlainError(TypeError):
    """The value is not plain data."""


def dump(value: Any) -> Any:
    """JSON values for numbers, text, None, lists, tuples, sets, dicts, NumPy values and Keras' own functions."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    match value:
        case list():
            return [dump(each) for each in value]
        case tuple() if type(value) is tuple:
            return {"tuple": [dump(each) for each in value]}
        case set():
            return {"set": [dump(each) for each in value]}
        case dict() if type(value) is dict:
            return {"dict": [[dump(key), dump(each)] for key, each in value.items()]}
        case np.generic() | np.ndarray() if value.dtype.kind in "biuf":
            return {"array": [value.dtype.str, isinstance(value, np.ndarray), value.tolist()]}
        case FunctionType() if _is_of_keras(value.__module__):
            return {"function": [value.__module__, value.__qualname__]}
        case _:
            raise NotPlainError(type(value).__name__)


def load(stored: Any) -> Any:
    """Inverse of ``dump``."""
    if isinstance(stored, list):
        return [load(each) for each in stored]
    if not isinstance(stored, dict):
        return stored
    ((kind, content),) = stored.items()
    match kind:
        case "tuple":
            return tuple(load(each) for each in content)
        case "set":
            return {load(each) for each in content}
        case "dict":
            return {load(key): load(each) for key, each in content}
        case "array":
            kind, is_array, values = content
            array = np.array(values, kind)
            return array if is_array else array[()]
        case _:
            module, name = content
            if not _is_of_keras(module):
                raise NotPlainError(f"function {module}.{name}")
            return getattr(importlib.import_module(module), name)


def _is_of_keras(module: str) -> bool:
    """Only Keras' functions are looked up by name: writers to the storage must not choose others."""
    return module == "keras" or module.startswith("keras.")
