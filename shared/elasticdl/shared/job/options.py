"""Options: one declaration gives an option's name, type, default, help text, limits and target.

An option is a field of a dataclass, annotated with a ``Flag``. The option's name is the name of the field::

    num_workers: Annotated[int, Flag("Number of worker processes.", metavar="N", sets="JobSpec.workers")] = 2

The command line, job files, the Python API and ``json_schema`` are made from these declarations.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from elasticdl.shared.errors import check_range

T = TypeVar("T")
_UNITS_S = {"s": 1, "m": 60, "h": 3600}


class Seconds(float):
    """A duration: ``90``, ``90s``, ``1.5m`` and ``2h``; a number without a unit is seconds."""

    def __new__(cls, value: str | float) -> Seconds:
        """Read a duration."""
        text = str(value).strip()
        unit = _UNITS_S.get(text[-1:])
        try:
            seconds = float(text[:-1]) * unit if unit else float(text)
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds):
            raise ValueError(f"{text!r} is no duration: give 90, 90s, 1.5m or 2h")
        return super().__new__(cls, seconds)


UNLIMITED = Seconds(0)
"""Of flags that limit a time."""
_JSON_TYPES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", Seconds: "number"}


@dataclass(frozen=True, slots=True)
class Flag:
    """What the command line knows of an option besides its name, type and default.

    Attributes:
        metavar: stands for the value in the help text; empty: the type.
        name: the option's name without dashes, where it isn't the parameter's.
        letter: one-letter alias; empty: none.
        off: name that turns a switch off, without dashes; empty: none.
        shows: text shown as the default, where the default itself would say nothing.
        panel: heading in the help text of a command with many options.
        limits: least and greatest value that is accepted; None: any.
        sets: field that takes the value as it is, such as ``JobSpec.workers``; empty: the command interprets it.
        repeated: whether a text may be given several times; the command gets the texts joined with commas.
        is_secret: whether values may have credentials: the Python API puts none into command lines, which all users of
            the machine can read.
    """

    help: str
    metavar: str = ""
    name: str = ""
    letter: str = ""
    off: str = ""
    shows: str = ""
    panel: str = ""
    limits: tuple[float, float] | None = None
    sets: str = ""
    repeated: bool = False
    is_secret: bool = False

    def check(self, name: str, value: float | None) -> None:
        """Refuse a value outside the limits."""
        if self.limits is None or value is None:
            return
        low, high = self.limits
        check_range(f"--{name}", value, low, high)


@dataclass(frozen=True, slots=True)
class FlagType:
    """What a flag takes.

    Attributes:
        kind: ``bool``, ``int``, ``float``, ``str`` or ``Path``.
        choices: the only texts that it takes; empty: any.
        repeated: whether it may be given several times.
    """

    kind: type
    choices: tuple[str, ...] = ()
    repeated: bool = False


@functools.cache
def hints_of(owner: Any) -> Mapping[str, Any]:
    """The annotations of the fields of a dataclass, or of the parameters of a function, with their ``Flag``.

    Every command asks for those of all options.
    """
    return typing.get_type_hints(owner, include_extras=True)


def types_of(*owners: Any) -> dict[str, FlagType]:
    """What the flags among the fields of dataclasses, or the parameters of functions, take, by name."""
    return {
        name: _flag_type(hint, flag)
        for owner in owners
        for name, hint in hints_of(owner).items()
        if (flag := flag_of(hint)) is not None
    }


def _flag_type(hint: Any, flag: Flag) -> FlagType:
    """The type by an annotation: of a type, an enumeration, a ``Literal``, or one of these or None."""
    kind = without_none(typing.get_args(hint)[0])
    if typing.get_origin(kind) is Literal:
        return FlagType(str, typing.get_args(kind), flag.repeated)
    if issubclass(kind, enum.Enum):
        return FlagType(str, tuple(str(each.value) for each in kind), flag.repeated)
    return FlagType(kind, repeated=flag.repeated)


def flags_of(owner: type) -> Mapping[str, Flag]:
    """The flags among a dataclass' fields, by field name, in the order of the fields."""
    hints = hints_of(owner)
    found = {field.name: flag_of(hints[field.name]) for field in dataclasses.fields(owner)}
    return {name: flag for name, flag in found.items() if flag is not None}


def plain_values(options: Any) -> dict[str, Any]:
    """The options that differ from their defaults, as JSON has them."""
    return {
        field.name: value.value if isinstance(value, enum.Enum) else str(value) if isinstance(value, Path) else value
        for field in dataclasses.fields(options)
        if (value := getattr(options, field.name)) != field.default
    }


def from_plain_values(owner: type[T], values: Mapping[str, Any]) -> T:
    """Inverse of ``plain_values``.

    Raises:
        TypeError: there is no such option, or one without a default is missing.
        ValueError: an option has no such choice, or a value is no duration.
    """
    return owner(**typed_values(owner, values))


def typed_values(owner: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of options that have been JSON, with the types of their declarations. Raises ``ValueError`` as above."""
    hints = hints_of(owner)
    return {name: _typed(hints.get(name), value) for name, value in values.items()}


def _typed(hint: Any, value: Any) -> Any:
    kind = without_none(getattr(hint, "__origin__", hint))
    is_text = isinstance(kind, type) and issubclass(kind, (enum.Enum, Path, Seconds))
    return kind(value) if is_text and value is not None else value


def without_none(hint: Any) -> Any:
    """``X`` of ``X | None``."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    (kind,) = (each for each in typing.get_args(hint) if each is not type(None))
    return kind


def values_for(target: str, values: Any) -> dict[str, Any]:
    """The keyword arguments that some flags give a class.

    Args:
        target: the name of the class; flags say what they set as ``target.field``.
        values: an instance of a dataclass whose fields are flags. A value of None leaves the target's own default.
    """
    found = {}
    for name, flag in flags_of(type(values)).items():
        owner, _, field = flag.sets.partition(".")
        value = getattr(values, name)
        if owner == target and value is not None:
            found[field] = value
    return found


def json_schema(owner: type) -> dict[str, Any]:
    """The JSON schema of the values of a dataclass whose fields are options, as Kubernetes and editors read it.

    Durations are numbers of seconds. An option that may be given several times is one text with commas between.
    """
    flags, values = flags_of(owner), types_of(owner)
    defaults = {field.name: field.default for field in dataclasses.fields(owner)}
    return {
        "type": "object",
        "properties": {name: _value_schema(flag, values[name], defaults[name]) for name, flag in flags.items()},
        "required": [name for name in flags if defaults[name] is dataclasses.MISSING],
        "additionalProperties": False,
    }


def _value_schema(flag: Flag, value: FlagType, default: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _JSON_TYPES.get(value.kind, "string"), "description": flag.help}
    if value.choices:
        schema["enum"] = list(value.choices)
    if flag.limits is not None:
        schema["minimum"], schema["maximum"] = flag.limits
    if default is not dataclasses.MISSING and default is not None:
        schema["default"] = default.value if isinstance(default, enum.Enum) else default
    return schema


def flag_of(hint: Any) -> Flag | None:
    """The declaration in an annotation; None: it is of no option."""
    return next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Flag)), None)
