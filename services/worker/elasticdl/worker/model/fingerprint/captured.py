"""Data that Python functions refer to: arrays and collections in their closures, defaults and modules.

A traced function has such data in its graph. For functions that run as Python with each batch, it is looked up here.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from elasticdl.worker.model.fingerprint.layers import is_data
from elasticdl.worker.model.fingerprint.values import Description, describe

_FOREIGN = ("tensorflow", "keras", "numpy", "elasticdl")


def captured_data(functions: Iterable[Any]) -> Iterator[tuple[str, Description]]:
    """(name as in the source, description) of the data that functions refer to, directly or through others."""
    waiting = [(function, "") for function in functions]
    seen: set[int] = set()
    while waiting:
        value, name = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        match value:
            case functools.partial():
                waiting += [(part, "functools.partial") for part in (value.func, *value.args, *value.keywords.values())]
            case types.MethodType():
                waiting.append((value.__func__, name))
            case types.FunctionType():
                waiting += _references(value)
            case _ if is_data(value):
                yield f"variable {name!r}", describe(value)
            case _ if hasattr(value, "_func"):  # TensorFlow's wrapper of a function for py_function().
                waiting.append((value._func, name))


def _references(function: types.FunctionType) -> Iterator[tuple[Any, str]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield cell.cell_contents, name
        except ValueError:  # The variable has not been set yet.
            continue
    yield from ((value, f"default of {function.__name__}()") for value in function.__defaults__ or ())
    if (function.__module__ or "").partition(".")[0] in _FOREIGN:
        return
    for name in _names(code):
        if name in function.__globals__:
            yield function.__globals__[name], name


def _names(code: types.CodeType) -> Iterator[str]:
    """Global names that a function and the functions inside it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
