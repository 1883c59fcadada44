"""From inputs to numbers by Keras' own preprocessing layers, so an exported model takes values as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
from keras import layers, ops

from elasticdl.sql.columns.building import is_category, is_precise, places
from elasticdl.sql.columns.features import PACKED, Feature, Features, Input, Node
from elasticdl.sql.network.weighted import WeightedCategory

_DAYS_PER_YEAR, _DAYS_PER_WEEK = 365.2425, 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """Places of a category.

    Attributes:
        ids: a tensor of shape (batch, 1), or (batch, several).
        size: number of places.
        dimension: of the embedding that the statement asks for; 0: it asks for none.
    """

    ids: Any
    size: int
    is_list: bool
    dimension: int = 0


class Encoder:
    """Makes the inputs of a model, and its features from them. A step that several features share is made once."""

    def __init__(self, features: Features) -> None:
        self._kinds = {one.name: one for one in features.inputs}
        self._scales = {node.input: node for node in _numbers(feature.node for feature in features.features)}
        self._packed = {name: place for place, name in enumerate(features.packed)}
        self.inputs = {one.name: self._input(one) for one in features.inputs if one.name not in self._packed}
        if self._packed:
            self.inputs[PACKED] = keras.Input((len(self._packed),), name=PACKED, dtype="float32")
        self._made: dict[str, Any] = {}

    def numbers(self, features: Sequence[Feature]) -> Any:
        """All features side by side, (batch, numbers); None: there are none."""
        plain = [feature.node for feature in features if feature.node.operation == "number"]
        parts = self._plain_numbers(plain) if plain else []
        parts += [self._vector(feature.node) for feature in features if feature.node.operation != "number"]
        return _side_by_side(parts)

    def dense(self, features: Sequence[Feature]) -> Any:
        """Features that are no categories side by side, (batch, numbers); None: there are none."""
        return self.numbers([feature for feature in features if category_of(feature.node) is None])

    def categories(self, features: Sequence[Feature]) -> list[Category]:
        """The categories among features, also those that become a vector."""
        found = []
        for feature in features:
            if (node := category_of(feature.node)) is not None:
                ids = self._ids(node)
                dimension = int(feature.node.values.get("dimension", 0))
                found.append(Category(ids=ids, size=places(node), is_list=self._is_list(node), dimension=dimension))
        return found

    # --- inputs ----------------------------------------------------------------------------------------------------

    def _input(self, one: Input) -> Any:
        match one.kind:
            case "number":
                return keras.Input((1,), name=one.name, dtype=self._number_type(one.name))
            case "day":
                return keras.Input((1,), name=one.name, dtype="float64")
            case "vector":
                return keras.Input((one.size,), name=one.name, dtype="float32")
            case "text":
                return keras.Input((1,), name=one.name, dtype="string")
            case "texts":
                return keras.Input((None,), name=one.name, dtype="string")
            case "id":
                return keras.Input((1,), name=one.name, dtype="int64")
            case _:
                return keras.Input((None,), name=one.name, dtype="int64")

    def _number_type(self, name: str) -> str:
        node = self._scales.get(name)
        return "float64" if node is not None and is_precise(node) else "float32"

    # --- numbers ---------------------------------------------------------------------------------------------------

    def _plain_numbers(self, nodes: Sequence[Node]) -> list[Any]:
        """Scaled numbers, and which of them are missing: some layers for all of them, not some for each."""
        parts = []
        packed = [node for node in nodes if node.input in self._packed]
        others = [node for node in nodes if node.input not in self._packed]
        doubles = [node for node in others if self._number_type(node.input) == "float64"]
        floats = [node for node in others if self._number_type(node.input) == "float32"]
        for dtype, alike in (("float32", packed), ("float32", floats), ("float64", doubles)):
            if not alike:
                continue
            values = self._unpacked(alike) if alike is packed else self._joined(alike)
            scales = [1 / node.values["scale"] for node in alike]
            offsets = [-node.values["shift"] / node.values["scale"] for node in alike]
            scaled = ops.cast(layers.Rescaling(scales, offsets, dtype=dtype)(values), "float32")
            is_missing = ops.isnan(scaled)
            parts.append(ops.where(is_missing, ops.zeros_like(scaled), scaled))
            marked = [place for place, node in enumerate(alike) if node.values.get("missing")]
            if marked:
                parts.append(ops.take(ops.cast(is_missing, "float32"), marked, axis=1))
        return parts

    def _joined(self, nodes: Sequence[Node]) -> Any:
        return _side_by_side([self.inputs[node.input] for node in nodes])

    def _unpacked(self, nodes: Sequence[Node]) -> Any:
        """Some of the packed numbers, or all of them."""
        chosen = [self._packed[node.input] for node in nodes]
        packed = self.inputs[PACKED]
        return packed if chosen == list(range(len(self._packed))) else ops.take(packed, chosen, axis=1)

    def _vector(self, node: Node) -> Any:
        """One feature as numbers, (batch, numbers)."""
        return self._once(node, self._make_vector)

    def _make_vector(self, node: Node) -> Any:
        match node.operation:
            case "number":
                return _side_by_side(self._plain_numbers([node]))
            case "vector":
                scales = [1 / scale for scale in node.values["scale"]]
                pairs = zip(node.values["shift"], scales, strict=True)
                return layers.Rescaling(scales, [-shift * scale for shift, scale in pairs])(self.inputs[node.input])
            case "day":
                return _day(self.inputs[node.input], node.values)
            case "indicator":
                return self._indicator(node.of[0])
            case "weighted_indicator" | "weighted_embedding":
                return self._weighted(node)
            case "embedding":
                return self._embedding(node.of[0], int(node.values["dimension"]), node.values["combiner"])
            case _:  # A category that the statement leaves as it is.
                return self._indicator(node)

    # --- categories ------------------------------------------------------------------------------------------------

    def _ids(self, node: Node) -> Any:
        return self._once(node, self._make_ids)

    def _make_ids(self, node: Node) -> Any:
        value = self.inputs[node.input] if node.input else None
        match node.operation:
            case "vocabulary":
                lookup = layers.StringLookup(vocabulary=list(node.values["words"]) or [" "], mask_token="")
                return lookup(value)
            case "hash":
                return layers.Hashing(int(node.values["buckets"]) + 1, mask_value="")(value)
            case "identity":
                return self._identity(value, node)
            case "bucket":
                found = layers.Discretization(bin_boundaries=list(node.values["boundaries"]))(value)
                return ops.where(ops.isnan(value), ops.zeros_like(found), found + 1)
            case "cross":
                parts = tuple(self._ids(part) for part in node.of)
                return layers.HashedCrossing(int(node.values["buckets"]))(parts) + 1
            case _:
                offsets = [sum(map(places, node.of[:place])) for place, _ in enumerate(node.of)]
                ids = [ops.cast(self._ids(part), "int64") for part in node.of]
                return layers.Concatenate(axis=1)([one + offset for one, offset in zip(ids, offsets, strict=True)])

    def _identity(self, value: Any, node: Node) -> Any:
        """Places of ids; see ``Kind`` for what the inputs hold."""
        if self._kinds[node.input].kind == "ids":
            return ops.where(value < 0, ops.ones_like(value), ops.where(ops.equal(value, 0), value, value + 1))
        is_in_range = ops.logical_and(value >= 0, value < int(node.values["size"]))
        outside = ops.where(ops.equal(value, -1), ops.zeros_like(value), ops.ones_like(value))
        return ops.where(is_in_range, value + 2, outside)

    def _is_list(self, node: Node) -> bool:
        if node.operation in ("concat", "cross"):
            return node.operation == "concat"
        return self._kinds[node.input].kind in ("texts", "ids")

    def _indicator(self, category: Node) -> Any:
        encoded = layers.CategoryEncoding(places(category), output_mode="multi_hot")(self._ids(category))
        return encoded[:, 1:] if self._is_list(category) and category.operation != "concat" else encoded

    def _embedding(self, category: Node, dimension: int, combiner: str) -> Any:
        vectors = layers.Embedding(places(category), dimension)
        return pooled(vectors(self._ids(category)), self._ids(category), combiner, is_list=self._is_list(category))

    def _weighted(self, node: Node) -> Any:
        """Weights of ids, (batch, ids) -> weights of places, (batch, places), or the weighted vectors of places."""
        weights, category = self.inputs[node.input], node.of[0]
        if node.operation == "weighted_indicator":
            return WeightedCategory(category.operation, dict(category.values))(weights)
        return WeightedCategory(
            category.operation,
            dict(category.values),
            dimension=int(node.values["dimension"]),
            combiner=node.values["combiner"],
        )(weights)

    def _once(self, node: Node, make: Callable[[Node], Any]) -> Any:
        key = f"{make.__name__} {node!r}"
        if key not in self._made:
            self._made[key] = make(node)
        return self._made[key]


def pooled(vectors: Any, ids: Any, combiner: str, *, is_list: bool) -> Any:
    """The vectors of a record's places as one: (batch, places, dimension) -> (batch, dimension)."""
    if not is_list:
        return layers.Reshape((vectors.shape[-1],))(vectors)
    there = ops.expand_dims(ops.cast(ops.not_equal(ids, 0), vectors.dtype), -1)  # Place 0 pads lists.
    total = ops.sum(vectors * there, axis=1)
    if combiner == "sum":
        return total
    number = ops.maximum(ops.sum(there, axis=1), 1.0)
    return total / (number if combiner == "mean" else ops.sqrt(number))


def category_of(node: Node) -> Node | None:
    """The category that a feature shows; None: it is a number."""
    if is_category(node):
        return node
    return node.of[0] if node.operation in ("indicator", "embedding") else None


def _day(days: Any, values: Mapping[str, Any]) -> Any:
    """Trend, time of the year, weekday, and time of the day where there is one; all 0 for a missing day."""
    is_missing = ops.isnan(days)
    known = ops.where(is_missing, ops.zeros_like(days), days)
    trend = (known - values["shift"]) / values["scale"]
    parts = [ops.cast(trend, "float32")]
    periods = (_DAYS_PER_YEAR, _DAYS_PER_WEEK, *((1.0,) if values.get("hours") else ()))
    for period in periods:
        angle = ops.cast(ops.mod(known, period) * (2 * math.pi / period), "float32")
        parts += [ops.sin(angle), ops.cos(angle)]
    found = ops.where(is_missing, ops.zeros_like(trend), ops.ones_like(trend))
    numbers = _side_by_side(parts) * ops.cast(found, "float32")
    return _side_by_side([numbers, ops.cast(is_missing, "float32")]) if values.get("missing") else numbers


def _numbers(nodes: Iterable[Node]) -> Iterable[Node]:
    for node in nodes:
        if node.operation == "number":
            yield node
        yield from _numbers(node.of)


def _side_by_side(parts: Sequence[Any]) -> Any:
    if len(parts) < 2:
        return parts[0] if parts else None
    return layers.Concatenate(axis=1)(list(parts))
