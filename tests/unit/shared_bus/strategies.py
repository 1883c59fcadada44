"""Arbitrary values of every message type, derived from the type hints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from elasticdl.shared.job.plan import Plan, Source
from elasticdl.shared.job.spec import JobSpec

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_SMALL = st.integers(1, 1000)
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(0, 2**63 - 1) | st.integers(0, 5),
    float: st.floats(allow_nan=False),
    str: _TEXT,
    bytes: st.binary(max_size=16),
    bool: st.booleans(),
}
_BOUNDED: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (Source, "records"): st.integers(0, 1 << 48),
    (Plan, "minibatch_size"): _SMALL,
    (Plan, "minibatches_per_task"): _SMALL,
    (Plan, "epochs"): _SMALL,
    (Plan, "seed"): st.integers(0, 2**64 - 1),
    (Plan, "max_step"): st.integers(0, 1 << 62),
    (JobSpec, "checksum"): st.integers(0, 2**64 - 1),
}


@cache
def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type."""
    while hasattr(hint, "__supertype__") or get_origin(hint) is Annotated:
        hint = getattr(hint, "__supertype__", None) or hint.__origin__
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if hint is NoneType:
        return st.none()
    if origin in (UnionType, Union):
        return st.one_of([values(each) for each in arguments])
    if origin is Sequence or (origin is tuple and arguments[-1] is Ellipsis):
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(each) for each in arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3).map(MappingProxyType)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    return _instances(hint)


def _instances(kind: type) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    fields = {
        name: _BOUNDED[kind, name] if (kind, name) in _BOUNDED else values(hints[name])
        for name in (each.name for each in dataclasses.fields(kind))
    }
    return st.builds(kind, **fields)
