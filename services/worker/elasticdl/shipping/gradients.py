"""Gradients as TensorFlow gives them: tensors, or the parts of a lookup's gradient, which is one part for each use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def is_in_parts(gradient: Any) -> bool:
    """Whether it is that of lookups only: each part belongs to a row, and a row may have several."""
    return isinstance(gradient, tf.IndexedSlices)


def on_parts(function: Callable[[Any], Any], gradient: Any) -> Any:
    """The gradient with a function applied to each of its parts, or to the whole tensor."""
    if not isinstance(gradient, tf.IndexedSlices):
        return function(gradient)
    return tf.IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)


def parts_of(gradient: Any) -> Any:
    """The parts, one after another, or the whole tensor."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
