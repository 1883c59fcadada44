"""Splitmix64 on machine integers: ``elasticdl.shared.job.permutation.mix64`` for the kernels."""

from __future__ import annotations

import numpy as np

from elasticdl.ps.engine.kernels.compiled import inlined

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


@inlined
def mix64(value: np.uint64) -> np.uint64:
    """Splitmix64's finaliser: a bijection of 64-bit integers with good avalanche (Steele et al., 2014)."""
    value = value + _INCREMENT
    value = (value ^ (value >> np.uint64(30))) * _MULTIPLIER_1
    value = (value ^ (value >> np.uint64(27))) * _MULTIPLIER_2
    return value ^ (value >> np.uint64(31))
