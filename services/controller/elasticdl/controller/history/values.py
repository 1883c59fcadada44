"""The core's values as JSON, and back: only what differs from a default, or from the value before. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: Any, before: Any = None) -> Any:
    """A value as ``json.dumps`` takes it.

    Args:
        before: a value of the same class; then only the fields that have changed are in the answer.
    """
    kind: Any = type(value)
    if (defaults := _defaults(kind)) is not None:
        if type(before) is not kind:
            before = None
        found = {}
        for name, default in defaults.items():
            now = getattr(value, name)
            former = default if before is None else getattr(before, name)
            if former is dataclasses.MISSING or now != former:
                found[name] = to_json(now, None if before is None else former)
        return found
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [to_json(each) for each in value]
    return value.value if isinstance(value, Enum) else value


def of_json(kind: type[T], data: Any, before: T | None = None) -> T:
    """Inverse of ``to_json``.

    Raises:
        ValueError, TypeError, LookupError: this is no such value.
    """
    value: T = _of_json(kind, data, before)
    return value


def _of_json(hint: Any, data: Any, before: Any = None) -> Any:
    if isinstance(hint, type) and (defaults := _defaults(hint)) is not None:
        hints = _hints(hint)
        known = {name: getattr(before, name) for name in defaults} if isinstance(before, hint) else {}
        return hint(**known | {name: _of_json(hints[name], each, known.get(name)) for name, each in data.items()})
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (kind,) = (each for each in arguments if each is not NoneType)
        return None if data is None else _of_json(kind, data, before)
    if origin is tuple:
        kinds = arguments[:1] * len(data) if arguments[-1] is Ellipsis else arguments
        return tuple([_of_json(kind, each) for kind, each in zip(kinds, data, strict=True)])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {name: _of_json(arguments[1], each) for name, each in data.items()}
    return hint(data)


@lru_cache(maxsize=64)
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


@lru_cache(maxsize=64)
def _defaults(kind: Any) -> Mapping[str, Any] | None:
    """The fields of a dataclass or named tuple, and their defaults; None: it is neither."""
    if hasattr(kind, "_field_defaults"):
        return {name: kind._field_defaults.get(name, dataclasses.MISSING) for name in kind._fields}
    return {each.name: _default(each) for each in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else None


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
