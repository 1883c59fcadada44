"""Words of messages: lists, sizes, counts with their noun, durations and points in time."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from itertools import islice

_COMPARED_CHARS_MAX = 200
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
    near = similar(name, known)
    return f"Did you mean {near!r}?" if near else otherwise


def similar(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known name that is written almost as this one, without regard to case; empty: none is.

    Args:
        cutoff: how alike names have to be, from 0 to 1.
    """
    import difflib  # Only errors need it, and every process imports this module.

    by_folded = {each.casefold(): each for each in known}
    folded = name.casefold()
    if folded in by_folded:
        return by_folded[folded]
    near = difflib.get_close_matches(folded[:_COMPARED_CHARS_MAX], by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else ""


def plain_number(value: float) -> str:
    """``2,147,483,647``, ``0.5``: whole numbers with all of their digits."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def size(size_bytes: float) -> str:
    """``12 bytes``, ``1.5 MiB``, ``64 MiB``."""
    if size_bytes < 1024:
        return "1 byte" if size_bytes == 1 else f"{int(size_bytes)} bytes"
    for unit in _UNITS:
        size_bytes /= 1024
        if size_bytes < 1023.95 or unit == _UNITS[-1]:
            break
    return f"{size_bytes:.1f}".removesuffix(".0") + f" {unit}"


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 worker``, ``2 workers``, ``1,200 batches``; ``plural``: where it is not the noun with an ``s``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def stopwatch(seconds: float) -> str:
    """``1:05``, or ``2:01:05`` from an hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def times(number: int) -> str:
    """``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def moment(time_s: float) -> str:
    """Local date and time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def minute(time_s: float) -> str:
    """Local date and time, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))


def time_of_day(time_s: float) -> str:
    """Local time of day with milliseconds."""
    return time.strftime("%H:%M:%S", time.localtime(time_s)) + f".{int(time_s * 1000) % 1000:03}"


def transfers(requests: int, fetched_bytes: int, cached_bytes: int) -> str:
    """``1.5 MiB in 2 requests to object storage, 3 MiB from the cache``."""
    return (
        f"{size(fetched_bytes)} in {count(requests, 'request')} to object storage, {size(cached_bytes)} from the cache"
    )


def duration(seconds: float) -> str:
    """``1.5 s``; below 0.1 s with milliseconds: ``0.042 s``."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds:.3f} s"
