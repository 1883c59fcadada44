"""What weights are expected to be after some more updates: each moves a weight as its momentum says.

That is the optimizer's formula with the gradient that leaves the momentum as it is. Weight prediction: Chen et al.,
"Efficient and Robust Parallel DNN Training through Model Parallelism on Multi-GPU Platform", 2018.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.shared.model.kernels.compiled import FLOATS, FLOATS_OUT, kernel

MOMENTUM, MOMENTUM_BY_ROOT, MOMENTUM_BY_NORM, SIGN = range(4)
"""A weight moves by its momentum, by that over the root of a norm, over a norm, or by its sign."""

Floats = NDArray[np.float32]


@kernel(types.void, types.int64, FLOATS, FLOATS, FLOATS, types.float32, types.float32, FLOATS_OUT)
def predict(
    kind: int, weights: Floats, momentum: Floats, norm: Floats, factor: float, epsilon: float, out: Floats
) -> None:
    """Write ``weights`` plus ``factor`` times the move of that kind into ``out``: float32 arrays of one length."""
    if kind == MOMENTUM:
        for i in range(weights.size):
            out[i] = weights[i] + factor * momentum[i]
    elif kind == MOMENTUM_BY_ROOT:
        for i in range(weights.size):
            out[i] = weights[i] + (factor * momentum[i]) / (math.sqrt(norm[i]) + epsilon)
    elif kind == MOMENTUM_BY_NORM:
        for i in range(weights.size):
            out[i] = weights[i] + (factor * momentum[i]) / (norm[i] + epsilon)
    else:
        for i in range(weights.size):
            out[i] = weights[i] + factor * np.sign(momentum[i])
