"""``mix64`` of whole arrays with NumPy, apart from the scalar ``mix64``: the master runs without NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)


def mix64_array(values: Words) -> Words:
    """``elasticdl.shared.job.permutation.mix64`` of each value; products of uint64 arrays wrap, as they should."""
    values = values + _GAMMA
    values ^= values >> _S30
    values *= _FACTOR_1
    values ^= values >> _S27
    values *= _FACTOR_2
    values ^= values >> _S31
    return values
