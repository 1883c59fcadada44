"""What changed in the state of a job between two points of its log. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ABSENT = "absent"
_NAMES = ("epoch", "evaluation", "ps", "name", "snapshot", "seq")
"""Keys of rows that name them, so that rows are compared with their own former values."""
_VALUE_CHARS_MAX = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A value that changed; ``where``: its place, such as ``pods.ps-0.phase``."""

    where: str
    before: str
    after: str


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The values that differ between two states, as JSON values, in the order of their places."""
    old, new = dict(_flat(before, "")), dict(_flat(after, ""))
    return [
        Difference(where=where, before=old.get(where, ABSENT), after=new.get(where, ABSENT))
        for where in sorted({*old, *new})
        if old.get(where) != new.get(where)
    ]


def _flat(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Every single value with its place."""
    match value:
        case Mapping():
            for key, each in value.items():
                yield from _flat(each, f"{where}.{key}" if where else str(key))
        case str() | bytes():
            yield where, _short(value)
        case Sequence():
            for number, each in enumerate(value):
                yield from _flat(each, f"{where}[{_name_of(each) or number}]")
        case float():
            yield where, f"{value:.6g}" if abs(value) < 1e6 else f"{value:.3f}"
        case _:
            yield where, _short(value)


def _name_of(row: object) -> str:
    if not isinstance(row, Mapping):
        return ""
    return next((f"{key} {row[key]}" for key in _NAMES if key in row), "")


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[: _VALUE_CHARS_MAX - 3]}..."
