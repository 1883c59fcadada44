"""Words of messages."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice


def some_of(names: Collection[str], most: int) -> str:
    """The first names, and how many more there are: ``a, b and 3 more``."""
    shown = ", ".join(islice(names, most))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
