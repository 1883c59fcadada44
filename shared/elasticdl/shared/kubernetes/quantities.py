"""Quantities in the notation of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil

_QUANTITY = re.compile(r"(\d+\.?\d*(?:[eE][+-]?\d+)?)([numkMGTPE]|[KMGTPE]i)?")
_FACTORS: Mapping[str, float] = {
    **{unit: 1000.0**power for power, unit in enumerate(("n", "u", "m", "", "k", *"MGTPE"), -3)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}
_MEBIBYTE = 1 << 20


def amount(quantity: str | float) -> float:
    """The number that a quantity stands for: ``500m`` is 0.5, ``1Ki`` is 1024."""
    found = _QUANTITY.fullmatch(str(quantity))
    if not found:
        raise ValueError(f"{quantity!r} is not a quantity")
    return float(found[1]) * _FACTORS[found[2] or ""]


def parse_bytes(quantity: str | float) -> int:
    """The bytes of a quantity such as ``4Gi``, ``1.5e9`` or ``512M``, rounded up."""
    return ceil(amount(quantity))


def format_bytes(size_bytes: float) -> str:
    """A quantity in MiB, rounded up."""
    return f"{ceil(size_bytes / _MEBIBYTE)}Mi"
