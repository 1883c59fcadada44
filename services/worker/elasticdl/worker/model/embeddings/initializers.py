"""Keras initializers as distributions that a hash of (seed, table, id) can drive, row by row."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from elasticdl.shared.model.signature import RowInitializer

_TRUNCATION = 0.87962566103423978
"""Standard deviation of a unit normal truncated at two; Keras divides by it in VarianceScaling."""


def row_initializer(initializer: Any, input_dim: int | None, width: int) -> RowInitializer | None:
    """The distribution of one row, or None when it can't be driven so (a matrix, an orthogonal one, the user's own).

    Args:
        initializer: a ``keras.initializers.Initializer``; its seed plays no part.
        input_dim: number of rows, None when open-ended; variance scaling needs it.
        width: floats per row.
    """
    match initializer:
        case keras.initializers.Zeros():
            return RowInitializer(distribution="zeros")
        case keras.initializers.Ones():
            return RowInitializer(distribution="constant", low=1.0)
        case keras.initializers.Constant() if np.ndim(initializer.value) == 0:
            return RowInitializer(distribution="constant", low=float(initializer.value))
        case keras.initializers.RandomUniform():
            return RowInitializer(distribution="uniform", low=initializer.minval, high=initializer.maxval)
        case keras.initializers.RandomNormal():
            return RowInitializer(distribution="normal", low=initializer.mean, high=initializer.stddev)
        case keras.initializers.TruncatedNormal():
            return RowInitializer(distribution="truncated_normal", low=initializer.mean, high=initializer.stddev)
        case keras.initializers.VarianceScaling() if input_dim:
            return _variance_scaling(initializer, input_dim, width)
        case _:
            return None


def _variance_scaling(initializer: Any, input_dim: int, width: int) -> RowInitializer:
    """Keras' formula with fan_in = rows and fan_out = width, as it is for a matrix of that shape."""
    fans = {"fan_in": input_dim, "fan_out": width, "fan_avg": (input_dim + width) / 2}
    variance = initializer.scale / max(1.0, fans[initializer.mode])
    match initializer.distribution:
        case "uniform":
            limit = math.sqrt(3.0 * variance)
            return RowInitializer(distribution="uniform", low=-limit, high=limit)
        case "untruncated_normal":
            return RowInitializer(distribution="normal", high=math.sqrt(variance))
        case _:
            return RowInitializer(distribution="truncated_normal", high=math.sqrt(variance) / _TRUNCATION)
