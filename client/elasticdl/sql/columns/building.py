"""From decisions about columns to inputs and fitted features."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticdl.sql.columns.derivation import VOCABULARY_MAX, Decision
from elasticdl.sql.columns.features import Feature, Input, Kind, Node
from elasticdl.sql.columns.fitting import Fitter
from elasticdl.sql.columns.profile import Profile

INDICATOR_MAX = 8
"""Places of a category that becomes a 0/1 vector; one with more of them is embedded."""
_DIMENSION_MAX = 32
_PACKED_FROM = 100
"""Numbers are packed in tables that have at least this many."""
_PRECISE_FROM = 1e4
"""A number whose mean is this many standard deviations away from 0 is scaled in float64."""
_KINDS: dict[str, Kind] = {
    "number": "number", "day": "day", "vocabulary": "text", "hash": "text", "vector": "vector", "texts": "texts",
}  # fmt: skip


@dataclass(slots=True)
class Inputs:
    """The inputs of a model while its features are made: each is there once."""

    taken: dict[tuple[object, ...], Input] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def add(
        self, column: str, kind: Kind, source: str, *, size: int = 0, delimiters: tuple[str, str] = ("", "")
    ) -> Input:
        """The input of a kind that takes a column."""
        key = (column, kind, size, delimiters)
        if key not in self.taken:
            self.taken[key] = Input(
                name=self.reserve(column),
                column=column,
                kind=kind,
                size=size,
                delimiter=delimiters[0],
                pair_delimiter=delimiters[1],
                source=source,
            )
        return self.taken[key]

    def reserve(self, column: str) -> str:
        """A name that Keras and TensorFlow take, and that no other input has."""
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", column).strip("_") or "column"
        plain = plain if plain[0].isalpha() else f"c_{plain}"
        name, number = plain, 1
        while name.lower() in self.names:
            number += 1
            name = f"{plain}_{number}"
        self.names.add(name.lower())
        return name

    def all(self) -> tuple[Input, ...]:
        """In the order in which they were added."""
        return tuple(self.taken.values())


def features_of(
    decisions: Iterable[Decision], profiles: Mapping[str, Profile], inputs: Inputs, fitter: Fitter
) -> list[Feature]:
    """The features of columns that the statement does not describe, fitted."""
    used = [decision for decision in decisions if decision.use != "out"]
    made: list[tuple[Decision, Input]] = []
    for decision in used:
        profile = profiles[decision.name]
        size = int(profile.low) if decision.use == "vector" else 0
        made.append((decision, inputs.add(decision.name, _KINDS[decision.use], profile.source, size=size)))
    fitter.fit_moments([one for _, one in made])
    fitter.fit_vocabularies([one for decision, one in made if decision.use == "vocabulary"])
    return [Feature(node=_node(decision, one, fitter)) for decision, one in made]


def _node(decision: Decision, one: Input, fitter: Fitter) -> Node:
    match decision.use:
        case "number" | "day":
            return scaled(one, fitter)
        case "vector":
            return vector(one, fitter)
        case "hash":
            return embedded(Node(operation="hash", input=one.name, values={"buckets": decision.buckets}))
        case _:
            return shown(vocabulary(one, fitter, VOCABULARY_MAX))


def scaled(one: Input, fitter: Fitter) -> Node:
    """A number less its mean, divided by its standard deviation."""
    moments = fitter.moments(one)
    values = {"shift": moments.mean, "scale": moments.deviation or 1.0, "missing": moments.nulls > 0}
    return Node(operation="day" if one.kind == "day" else "number", input=one.name, values=values)


def vector(one: Input, fitter: Fitter) -> Node:
    """Numbers, each scaled by itself."""
    means, deviations = fitter.vector_moments(one)
    return Node(operation="vector", input=one.name, values={"shift": means, "scale": deviations})


def vocabulary(one: Input, fitter: Fitter, most: int) -> Node:
    """The place of a text in its vocabulary."""
    return Node(operation="vocabulary", input=one.name, values={"words": fitter.vocabulary(one, most)})


def shown(category: Node) -> Node:
    """A category as numbers: 0 and 1 for few places, an embedding for many."""
    return indicator(category) if places(category) <= INDICATOR_MAX + 2 else embedded(category)


def indicator(category: Node) -> Node:
    """A number for each place: how often it occurs."""
    return Node(operation="indicator", of=(category,))


def embedded(category: Node, dimension: int = 0, combiner: str = "mean") -> Node:
    """A vector for each place, and their ``combiner`` where there are several.

    Args:
        dimension: 0: by the number of places, 1.6 n^0.56 as fastai has it, at most 32.
    """
    dimension = dimension or min(_DIMENSION_MAX, max(2, round(1.6 * places(category) ** 0.56)))
    return Node(operation="embedding", of=(category,), values={"dimension": dimension, "combiner": combiner})


def places(category: Node) -> int:
    """How many places a category has; see ``features``."""
    match category.operation:
        case "vocabulary":
            return len(category.values["words"]) + 2
        case "identity":
            return int(category.values["size"]) + 2
        case "bucket":
            return len(category.values["boundaries"]) + 2
        case "concat":
            return sum(map(places, category.of))
        case _:
            return int(category.values["buckets"]) + 1


def is_category(node: Node) -> bool:
    """Whether a step gives places, and no numbers yet."""
    return node.operation in ("vocabulary", "identity", "bucket", "concat", "hash", "cross")


def is_precise(number: Node) -> bool:
    """Whether the values of a number need float64 until they are scaled."""
    return bool(abs(number.values["shift"]) > _PRECISE_FROM * number.values["scale"])


def packed(inputs: Iterable[Input], features: Iterable[Feature]) -> tuple[str, ...]:
    """Names of the inputs that are packed; see ``features``. Those of a few numbers stay as they are."""
    plain = {each.node.input for each in features if each.node.operation == "number" and not is_precise(each.node)}
    others = {name for each in features if each.node.operation != "number" for name in each.node.inputs()}
    names = tuple(one.name for one in inputs if one.kind == "number" and one.name in plain - others)
    return names if len(names) >= _PACKED_FROM else ()
