"""Converts values to JSON values and back, derived from type hints, for data that only this program reads.

Dataclasses become lists of their fields' values, without names. Store ``JsonCodec.structure`` beside such values to
detect that the classes have changed since. Messages between programs are protobuf (``codec.py``).
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.rangeset import RangeSet

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Conversion:
    """The conversion of one type; ``name`` describes the type."""

    name: str
    dump: Convert
    load: Convert


class JsonCodec:
    """The conversion for one type.

    Args:
        hint: a type hint: scalars, enums, dataclasses, unions, ``None``, lists, tuples, sets, mappings,
            RangeSet, and combinations of them.
        left_out: type hints of tuples that are loaded empty: they are stored elsewhere.
    """

    def __init__(self, hint: Any, *, left_out: Iterable[Any] = ()) -> None:
        self._classes: dict[str, str] = {}
        self._conversions: dict[Any, _Conversion] = dict.fromkeys(left_out, _LEFT_OUT)
        self._conversion = self._of(hint)

    @property
    def structure(self) -> str:
        """All classes in the type, with the names and types of their fields; equal if the conversion is the same."""
        classes = "; ".join(f"{name} = {fields}" for name, fields in sorted(self._classes.items()))
        return f"{self._conversion.name} where {classes}"

    def dump(self, value: Any) -> Any:
        """A value of the type as JSON values."""
        return self._conversion.dump(value)

    def load(self, plain: Any) -> Any:
        """Inverse of ``dump``.

        Raises:
            ValueError, TypeError, KeyError, LookupError: the value was not dumped from this type.
        """
        return self._conversion.load(plain)

    def _of(self, hint: Any) -> _Conversion:
        while hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        if hint not in self._conversions:
            self._conversions[hint] = self._make(hint)
        return self._conversions[hint]

    def _make(self, hint: Any) -> _Conversion:
        origin, arguments = get_origin(hint), get_args(hint)
        if hint in _LEAVES:
            return _LEAVES[hint]
        if origin in (UnionType, Union):
            return self._union(arguments)
        if origin is tuple and arguments[-1] is not Ellipsis:
            return self._fixed(arguments)
        if origin in _SEQUENCES:
            return self._sequence(_SEQUENCES[origin], arguments[0])
        if origin is set:
            return _INTEGERS if arguments == (int,) else self._set(arguments[0])
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(origin, *arguments)
        if isinstance(hint, type) and issubclass(hint, Enum):
            members = dict(hint.__members__)
            return _Conversion(f"{hint.__name__}{sorted(members)}", lambda value: value.name, members.__getitem__)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self._dataclass(hint)
        raise InvariantError(f"there is no rule to make plain values of {hint!r}")

    def _dataclass(self, kind: Any) -> _Conversion:
        hints = get_type_hints(kind)
        fields = [(each.name, self._of(hints[each.name])) for each in dataclasses.fields(kind)]
        self._classes[kind.__name__] = ", ".join(f"{name}: {way.name}" for name, way in fields)
        names = [name for name, _ in fields]
        dumps = [(place, way.dump) for place, (_, way) in enumerate(fields) if way.dump is not _same]
        loads = [(place, way.load) for place, (_, way) in enumerate(fields) if way.load is not _same]

        def dump(value: Any) -> list[Any]:
            values = [getattr(value, name) for name in names]
            for place, dump_field in dumps:
                values[place] = dump_field(values[place])
            return values

        def load(plain: list[Any]) -> Any:
            values = list(plain)
            for place, load_field in loads:
                values[place] = load_field(values[place])
            return kind(**dict(zip(names, values, strict=True)))

        return _Conversion(kind.__name__, dump, load)

    def _union(self, kinds: tuple[Any, ...]) -> _Conversion:
        present = [kind for kind in kinds if kind is not NoneType]
        ways = {kind.__name__: self._of(kind) for kind in present}
        name = " | ".join(way.name for way in ways.values())
        if len(present) == 1 and len(kinds) == 2:
            (way,) = ways.values()
            return _Conversion(
                f"{name} | None",
                lambda value: None if value is None else [way.dump(value)],
                lambda plain: None if plain is None else way.load(plain[0]),
            )

        def dump(value: Any) -> list[Any]:
            kind = type(value).__name__
            return [kind, ways[kind].dump(value)]

        return _Conversion(name, dump, lambda plain: ways[plain[0]].load(plain[1]))

    def _fixed(self, hints: tuple[Any, ...]) -> _Conversion:
        ways = [self._of(hint) for hint in hints]
        return _Conversion(
            f"({', '.join(way.name for way in ways)})",
            lambda value: [way.dump(each) for way, each in zip(ways, value, strict=True)],
            lambda plain: tuple(way.load(each) for way, each in zip(ways, plain, strict=True)),
        )

    def _sequence(self, kind: type, hint: Any) -> _Conversion:
        way = self._of(hint)
        return _Conversion(
            f"{kind.__name__} of {way.name}",
            lambda value: [way.dump(each) for each in value],
            lambda plain: kind(way.load(each) for each in plain),
        )

    def _set(self, hint: Any) -> _Conversion:
        way = self._of(hint)
        return _Conversion(
            f"set of {way.name}",
            lambda value: sorted(way.dump(each) for each in value),
            lambda plain: {way.load(each) for each in plain},
        )

    def _mapping(self, kind: type, key_hint: Any, hint: Any) -> _Conversion:
        """In order: a dict remembers the order of insertion, and some decisions go by it."""
        key, way = self._of(key_hint), self._of(hint)

        def load(plain: list[Any]) -> Any:
            loaded = {key.load(each_key): way.load(each) for each_key, each in plain}
            return loaded if kind is dict else MappingProxyType(loaded)

        return _Conversion(
            f"{kind.__name__} from {key.name} to {way.name}",
            lambda value: [[key.dump(each_key), way.dump(each)] for each_key, each in value.items()],
            load,
        )


def _same(value: Any) -> Any:
    return value


def _text(data: Any) -> str:
    return base64.b64encode(data).decode()


def _ranges(value: set[int] | RangeSet) -> list[list[int]]:
    if isinstance(value, RangeSet):
        return [[start, end] for start, end in value.ranges()]
    ranges: list[list[int]] = []
    for each in sorted(value):
        if ranges and ranges[-1][1] == each:
            ranges[-1][1] = each + 1
        else:
            ranges.append([each, each + 1])
    return ranges


_SEQUENCES: Mapping[Any, type] = {tuple: tuple, list: list, Sequence: tuple}
_LEAVES: Mapping[Any, _Conversion] = {
    **{kind: _Conversion(kind.__name__, _same, _same) for kind in (int, float, str, bool, NoneType)},
    bytes: _Conversion("bytes", _text, base64.b64decode),
    RangeSet: _Conversion("ranges", _ranges, RangeSet),
}
_LEFT_OUT = _Conversion("left out", lambda _: None, lambda _: ())
_INTEGERS = _Conversion(
    "set of int", _ranges, lambda plain: {each for start, end in plain for each in range(start, end)}
)
"""Sets of integers are mostly contiguous."""
