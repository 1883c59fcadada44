"""Quantities of memory in the notation of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil

_QUANTITY = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)(m|[kMGTPE]|[KMGTPE]i)?")
_FACTORS: Mapping[str, float] = {
    "": 1,
    "m": 1e-3,
    "k": 1e3,
    **{unit: 1000.0**power for power, unit in enumerate("MGTPE", 2)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}
_MEBIBYTE = 1 << 20


def parse_bytes(quantity: str | float) -> int:
    """The bytes of a quantity such as ``4Gi``, ``1.5e9`` or ``512M``, rounded up.

    Raises:
        ValueError: it is not valid.
    """
    found = _QUANTITY.fullmatch(str(quantity))
    if not found:
        raise ValueError(f"{quantity!r} is not a quantity of memory")
    return ceil(float(found[1]) * _FACTORS[found[2] or ""])


def format_bytes(size_bytes: float) -> str:
    """A quantity in MiB, rounded up."""
    return f"{ceil(size_bytes / _MEBIBYTE)}Mi"
