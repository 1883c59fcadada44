"""A layer for categories with weights, as WEIGHTED_CATEGORY describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import layers, ops

from elasticdl.sql.columns.building import places
from elasticdl.sql.columns.features import Node


@keras.saving.register_keras_serializable("elasticdl.sql")
class WeightedCategory(layers.Layer):  # type: ignore[misc]
    """(batch, ids) -> (batch, places), or (batch, dimension).

    The weight of an id counts for the place that its category has: several ids of a hash may have one place.

    Args:
        operation: ``identity`` or ``hash``, see ``Node``.
        values: ``size``, or ``buckets``.
        dimension: of the vectors of places, which are learned; 0: the weights themselves are the output.
        combiner: ``sum`` of the weighted vectors, or that divided by the sum of the weights (``mean``), or by the root
            of the sum of their squares (``sqrtn``).
    """

    def __init__(
        self, operation: str, values: Mapping[str, int], dimension: int = 0, combiner: str = "sum", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.operation, self.values = operation, dict(values)
        self.dimension, self.combiner = dimension, combiner

    def build(self, shape: Any) -> None:
        """Make the vectors of the places."""
        self._size = places(Node(operation=self.operation, values=self.values))
        self._places = self._places_of(int(shape[-1]))
        if self.dimension:
            self.vectors = self.add_weight(shape=(self._size, self.dimension), initializer="uniform", name="vectors")

    def call(self, weights: Any) -> Any:
        """See the class."""
        if not self.dimension:
            return ops.matmul(weights, ops.one_hot(self._places, self._size, dtype=weights.dtype))
        total = ops.matmul(weights, ops.take(self.vectors, self._places, axis=0))
        if self.combiner == "sum":
            return total
        powers = weights if self.combiner == "mean" else ops.square(weights)
        number = ops.sum(powers, axis=1, keepdims=True)
        number = number if self.combiner == "mean" else ops.sqrt(number)
        is_none = ops.equal(number, 0)
        return ops.where(is_none, ops.zeros_like(total), total / ops.where(is_none, ops.ones_like(number), number))

    def compute_output_shape(self, shape: Any) -> tuple[Any, int]:
        """The shape of the result."""
        width = self.dimension or places(Node(operation=self.operation, values=self.values))
        return (shape[0], width)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        own = {"operation": self.operation, "values": self.values}
        return {**super().get_config(), **own, "dimension": self.dimension, "combiner": self.combiner}

    def _places_of(self, ids: int) -> list[int]:
        """The place of each id, as ``Encoder`` counts places."""
        if self.operation == "identity":
            return [number + 2 if number < self.values["size"] else 1 for number in range(ids)]
        hashing = layers.Hashing(self.values["buckets"] + 1, mask_value="")
        found: list[int] = ops.convert_to_numpy(hashing([[str(number)] for number in range(ids)])).reshape(-1).tolist()
        return found
