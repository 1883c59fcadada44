"""Numbers in words: counts with their noun, sizes, durations and points in time."""

from __future__ import annotations

import time

from elasticdl.shared.words import size


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


def time_of_day(time_s: float) -> str:
    """Local time of day with milliseconds."""
    return time.strftime("%H:%M:%S", time.localtime(time_s)) + f".{int(time_s * 1000) % 1000:03}"


def transfers(requests: int, fetched_bytes: int, cached_bytes: int) -> str:
    """``1.5 MiB in 2 requests to object storage, 3 MiB from the cache``."""
    return (
        f"{size(fetched_bytes)} in {count(requests, 'request')} to object storage, {size(cached_bytes)} from the cache"
    )


def duration(seconds: float) -> str:
    """``1.5 s``; milliseconds are shown only where a tenth of a second would be nothing."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds:.3f} s"
