"""Converts the records of a user's reader to bytes, which are hashed and parsed as those of files are."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from elasticdl.shared.errors import UserError

_CHARS_SHOWN = 80


def encoded(record: object, where: str) -> tuple[bytes, bool]:
    """A record as bytes, and whether it has columns.

    Args:
        record: bytes and texts stay what they are. A dict of columns becomes a line of JSON, without its NaNs, which
            are missing values. NumPy's numbers and one-dimensional arrays are numbers and lists.

    Raises:
        UserError: it is something else, or a column has a value that can't be read.
    """
    match record:
        case bytes():
            return record, False
        case str():
            return record.encode(), False
        case Mapping():
            return _line(record, where), True
        case _:
            raise UserError(
                f"{where} is of type {_shown(record)}",
                hint="read_records() has to yield bytes, a str, or a dict with a value for each column.",
            )


def _line(record: Mapping[Any, Any], where: str) -> bytes:
    if wrong := [name for name in record if not isinstance(name, str)]:
        raise UserError(f"{where} has the key {wrong[0]!r}", hint="Keys are the names of columns: each must be a str.")
    try:
        return _ENCODER.encode(dict(record)).encode()
    except (TypeError, ValueError):
        plain = {name: _without_nan(value, f"{where}: column {name!r}") for name, value in record.items()}
        return _ENCODER.encode(plain).encode()


def _plain(value: object) -> object:
    """A value of NumPy as one of Python."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError


_ENCODER = json.JSONEncoder(default=_plain, allow_nan=False, ensure_ascii=False)


def _without_nan(value: Any, where: str) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    match value:
        case list() | tuple():
            return [_without_nan(each, where) for each in value]
        case float() if math.isnan(value):
            return None
        case float() if math.isinf(value):
            raise UserError(f"{where} is infinite", hint="Yield a number, or None for a missing value.")
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise UserError(
                f"{where} is of type {_shown(value)}, which can't be read",
                hint="Values are numbers, texts, booleans, lists of these, or None for a missing one. For anything "
                "else, yield bytes, and parse them in feed() or feed_batch().",
            )


def _shown(value: object) -> str:
    """``list: [1, 2]``."""
    shown = repr(value)
    return f"{type(value).__name__}: {shown[:_CHARS_SHOWN]}{'...' if shown[_CHARS_SHOWN:] else ''}"
