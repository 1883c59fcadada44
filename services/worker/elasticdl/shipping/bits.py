"""The bits of variables of any type as float32 values, in which a replica and its snapshots keep them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_BYTES = 4


def floats_of(variable: Any) -> Floats:
    """The bits of a variable as float32 (n,)."""
    data = np.asarray(variable.numpy()).tobytes()
    return np.frombuffer(data + bytes(-len(data) % _BYTES), np.float32)


def gather(variables: Sequence[Any], flat: Floats) -> None:
    """Write the bits of variables into a flat array, one after the other."""
    start = 0
    for variable in variables:
        values = floats_of(variable)
        flat[start : start + values.size] = values
        start += values.size


def scatter(flat: Floats, variables: Sequence[Any]) -> None:
    """The opposite of ``gather``."""
    start = 0
    for variable in variables:
        like = np.asarray(variable.numpy())
        count = -(-like.nbytes // _BYTES)
        values = flat[start : start + count].tobytes()[: like.nbytes]
        variable.assign(np.frombuffer(values, like.dtype).reshape(like.shape))
        start += count
