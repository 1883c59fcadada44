"""Words of messages, and names that users write."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

_UNITS = ("KiB", "MiB", "GiB", "TiB")


def some_of(names: Collection[str], most: int) -> str:
    """The first names, and how many more there are: ``a, b and 3 more``."""
    shown = ", ".join(islice(names, most))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def listed(text: str) -> tuple[str, ...]:
    """Names that are separated by commas: ``a, b`` -> ``("a", "b")``."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """What to do about a name that is unknown: use the similar one, or else the hint that is given."""
    import difflib  # Only errors need it, and every process imports this module.

    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def size(size_bytes: float) -> str:
    """``12 bytes``, ``1.5 MiB``, ``64 MiB``."""
    if size_bytes < 1024:
        return "1 byte" if size_bytes == 1 else f"{int(size_bytes)} bytes"
    for unit in _UNITS:
        size_bytes /= 1024
        if size_bytes < 1023.95 or unit == _UNITS[-1]:
            break
    return f"{size_bytes:.1f}".removesuffix(".0") + f" {unit}"
