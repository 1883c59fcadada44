"""Sums that travel in 16 bits: rounded once, by the member that has added them up, which uses the rounded ones, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DTYPES: Mapping[str, Any] = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
"""Types of 16 bits by name."""
_LARGEST = {"bfloat16": 0x7F7F, "float16": 0x7BFF}
"""The bits of their largest numbers."""


@dataclass(frozen=True, slots=True)
class Half:
    """How float32 means are rounded."""

    precision: str

    @classmethod
    def of(cls, precision: str | None) -> Half | None:
        """The rounding; None: there is none.

        Args:
            precision: ``bfloat16`` or ``float16``; anything else is float32.
        """
        if precision is None or precision not in DTYPES:
            return None
        return cls(precision)

    @property
    def dtype(self) -> Any:
        """The type of 16 bits."""
        return DTYPES[self.precision]

    def round(self, values: Array) -> Array:
        """float32 (n,) as uint16 (n,). What is too large for the type becomes its largest number."""
        largest = np.array(_LARGEST[self.precision], np.uint16).view(self.dtype).astype(np.float32)
        return np.clip(values, -largest, largest).astype(self.dtype).view(np.uint16)  # NaN stays NaN.

    def restore(self, rounded: Array, out: Array) -> None:
        """uint16 (n,) as float32 (n,)."""
        out[:] = rounded.view(self.dtype)
