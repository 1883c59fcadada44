"""Values of flags as Python and YAML write them: their types, and their text on the command line."""

from __future__ import annotations

import ast
import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticdl.shared.job.options import Flag, FlagType, Seconds
from elasticdl.shared.words import did_you_mean

_LITERALS = ("model_params", "data_reader_params")
"""Flags whose values are Python literals. Their items are separated by semicolons."""
_SWITCHES = ("true", "false")


_NUMBERS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    Seconds: "a number of seconds, such as 90, 90s or 1.5m",
}


def as_text(name: str, value: Any) -> Any:
    """A value of a flag as the command line takes it.

    Args:
        value: a dict for ``NAME=VALUE`` items, a list for several values, or anything else, which stays as it is.
    """
    if isinstance(value, Mapping):
        separator = ";" if name in _LITERALS else ","
        return separator.join(f"{key}={_item(name, item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        separator = ";" if any(isinstance(each, Mapping) for each in value) else ","
        return separator.join(str(as_text(name, each)) for each in value)
    return value


def wrong_type(name: str, value: Any, flag: FlagType) -> str:
    """Why a flag does not take a value.

    Args:
        value: as YAML reads it, but not None.

    Returns:
        One or two sentences that begin with the flag's name; empty: it takes the value.
    """
    if flag.kind is bool:
        fits = isinstance(value, bool) or str(value).lower() in _SWITCHES
        return "" if fits else f"{name} is true or false, not {_shown(value)}"
    if flag.choices:
        if _spelled(value) in flag.choices:
            return ""
        wrong = f"{name} is one of {', '.join(flag.choices)}, not {_shown(value)}."
        return f"{wrong} {did_you_mean(_spelled(value), flag.choices)}".rstrip()
    if flag.kind in _NUMBERS:
        return "" if _is_number(value, flag.kind) else f"{name} is {_NUMBERS[flag.kind]}, not {_shown(value)}"
    if flag.kind is Path and isinstance(value, (list, dict)):
        return f"{name} is one path, not {_shown(value)}"
    return _wrong_text(name, value)


def plain_value(value: Any, flag: FlagType) -> Any:
    """A value that has the right type, as the parser of the command line takes it: ``use_async: false`` is a choice."""
    return _spelled(value) if flag.choices or flag.kind is Path else value


def _wrong_text(name: str, value: Any) -> str:
    """``wrong_type`` for a text, which may be written as a list of texts, or as a dict of items."""
    if isinstance(value, Mapping):
        empty = [key for key, item in value.items() if item is None and name not in _LITERALS]
        return f"{name} has no value for {empty[0]!r}" if empty else ""
    if isinstance(value, list):
        return next((wrong for each in value if (wrong := _wrong_text(name, each))), "")
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return ""
    kind = "nothing" if value is None else "true or false" if isinstance(value, bool) else type(value).__name__
    return f"{name} is a text, and YAML reads {_shown(value)} as {kind}. Put it in quotes."


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    if kind is int and isinstance(value, float):
        return value.is_integer()
    try:
        kind(value)
    except (TypeError, ValueError):
        return False
    return True


def _spelled(value: Any) -> str:
    """A value as YAML spells it: ``true`` is a bool there, and the name of a choice here."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    """A wrong value in a message."""
    return repr(value) if isinstance(value, str) else _spelled(value)


def _item(flag: str, value: Any) -> str:
    """A value of ``NAME=VALUE``. Where literals count, texts that look like one, such as ``"1"``, are quoted."""
    if flag not in _LITERALS:
        return _spelled(value)
    return value if isinstance(value, str) and not _is_literal(value) else repr(value)


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def yaml_value(value: Any, flag: FlagType) -> Any:
    """The value of a flag as a job file shows it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if flag.repeated and "," in value:
        return value.split(",")
    return value


def with_choices(values: Mapping[str, Any], kinds: Mapping[str, FlagType]) -> dict[str, Any]:
    """The values, with booleans as text for options that take the text true or false, such as ``use_async``."""
    texts = {name for name, kind in kinds.items() if "true" in kind.choices}
    return {
        name: str(value).lower() if isinstance(value, bool) and name in texts else value
        for name, value in values.items()
    }


def as_flags(values: Mapping[str, Any], known: Mapping[str, Flag], function: str) -> list[str]:
    """Arguments of the command line for keyword arguments.

    Args:
        values: text, numbers, paths and booleans; dicts for ``NAME=VALUE`` items; lists for several values. A value of
            None is left out.

    Raises:
        TypeError: there is no such flag.
    """
    arguments = []
    for name, value in values.items():
        if name not in known:
            hint = did_you_mean(name, known, f"Its keywords are the flags of elasticdl {function}.")
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}. {hint}")
        arguments += _as_flag(name, value, known[name])
    return arguments


def _as_flag(name: str, value: Any, flag: Flag) -> list[str]:
    spelled = f"--{flag.name or name}"
    if value is None:
        return []
    if isinstance(value, bool):
        return [spelled] if value else [f"--{flag.off}"] * bool(flag.off)
    return [f"{spelled}={as_text(name, value)}"]
