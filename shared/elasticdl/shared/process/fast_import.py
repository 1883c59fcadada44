"""Imports of large packages without the garbage collector, which would look through them again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Let the garbage collector rest; it never looks at what was made until then: modules live for ever."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
