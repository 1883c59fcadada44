"""Requests for many objects, some at a time: each of them waits for a disk or a server most of its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_THREADS_MAX = 16
_SUBMITTED_MAX = 1024
"""Requests that wait for a thread: a million at once would take more memory than their results."""


def for_each(items: Sequence[T], request: Callable[[T], R]) -> Iterator[R]:
    """Make a request for each item, up to 16 of them at a time.

    Args:
        items: a sequence, so that only some of them are taken at a time.
        request: safe in several threads.

    Yields:
        The results in the order of the items.

    Raises:
        Exception: that of the first item, in their order, whose request raised one. Some later requests are made.
    """
    with ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="objects") as pool:
        for start in range(0, len(items), _SUBMITTED_MAX):
            yield from pool.map(request, items[start : start + _SUBMITTED_MAX])
