"""A batch as the step takes it: features, labels and weights of records that passed the user's feed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

Structure = Any
"""A tensor, or a tuple, list or dict of structures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpec:
    """Types of a batch's tensors; every leading dimension is open.

    Attributes:
        features: structure of ``tf.TypeSpec``.
        labels: the same, or None (predict).
        weights: the same, or None.
        has_labels: whether the labels are the user's. Otherwise they are zeros that nothing looks at.
    """

    features: Structure
    labels: Structure = None
    weights: Structure = None
    has_labels: bool = True
    key: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", repr((self.features, self.labels, self.weights)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Tensors of one batch.

    Attributes:
        features: what the model is called with, batch dimension first.
        labels: what the loss is called with, or None (predict).
        weights: one weight per record, or None.
        count: number of records, at least 1.
        ids: what the function gave that the feeder was joined with; None: the feed was called alone.
    """

    features: Structure
    labels: Structure = None
    weights: Structure = None
    count: int
    spec: BatchSpec
    ids: list[Any] | None = None


def open_spec(tensor: Any) -> Any:
    """A tensor's type (or a type) with an open leading dimension."""
    spec = tensor if isinstance(tensor, tf.TypeSpec) else tf.type_spec_from_value(tensor)
    match spec:
        case tf.TensorSpec():
            return tf.TensorSpec([None, *spec.shape[1:]] if spec.shape.rank else spec.shape, spec.dtype)
        case tf.SparseTensorSpec():
            return tf.SparseTensorSpec([None, *spec.shape[1:]], spec.dtype)
        case tf.RaggedTensorSpec():
            return tf.RaggedTensorSpec([None, *spec.shape[1:]], spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
        case _:
            return spec
