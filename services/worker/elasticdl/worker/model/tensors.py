"""Tensors over NumPy memory. A copy by ``tf.constant`` costs up to 0.2 ms while its code is not in the cache."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.model.aligned import ALIGNMENT_BYTES, address, aligned_empty

_LENDABLE_KINDS = frozenset("iuf")
"""NumPy types that TensorFlow takes over without a copy: integers and floats."""


def lend(array: NDArray[Any]) -> Any:
    """A tensor over the array's own memory where TensorFlow can use it, else over a copy.

    TensorFlow requires its alignment, and may overwrite memory that it was lent: nothing else may use the array while
    the tensor exists.
    """
    usable = array.size and array.flags.c_contiguous and array.flags.writeable and array.dtype.kind in _LENDABLE_KINDS
    if not usable or address(array) % ALIGNMENT_BYTES:
        return tf.constant(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def lend_copy(array: NDArray[Any]) -> Any:
    """A tensor over a copy of the array."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return lend(copy)


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The shape of an eager tensor, or of a ragged or sparse one, whose open dimensions are -1; () for a scalar."""
    if isinstance(tensor, tf.Tensor):
        shape: tuple[int, ...] = tensor._shape_tuple()  # ``shape`` makes an object for each dimension.
        return shape
    return tuple(-1 if size is None else int(size) for size in tensor.shape)
