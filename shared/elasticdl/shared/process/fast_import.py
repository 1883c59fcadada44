"""Imports large packages with the garbage collector off, which would otherwise scan them repeatedly."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable the garbage collector in this block, and exempt all present objects from it: modules are permanent."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
