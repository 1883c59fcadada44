"""The networks: each gives scores, (batch, units), from encoded features."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import layers, ops

from elasticdl.shared.errors import UserError
from elasticdl.shared.words import did_you_mean
from elasticdl.sql.columns.features import Feature
from elasticdl.sql.network.encoding import Encoder, pooled

LINEAR_TARGETS = ("linear_feature_columns", "linear", "wide")
DEEP_TARGETS = ("dnn_feature_columns", "dnn", "deep", "feature_columns")
_WIDE_WEIGHTS_MAX = 4_000_000
"""A wide part with more weights for one category is left out."""


def linear(encoder: Encoder, features: Sequence[Feature], units: int) -> Any:
    """A weight for each number and for each place of a category."""
    parts = []
    numbers = encoder.dense(features)
    if numbers is not None:
        parts.append(layers.Dense(units, name="linear_numbers")(numbers))
    for place, category in enumerate(encoder.categories(features)):
        if category.size * units <= _WIDE_WEIGHTS_MAX:
            table = layers.Embedding(
                category.size, units, embeddings_initializer="zeros", name=f"linear_category_{place}"
            )
            parts.append(pooled(table(category.ids), category.ids, "sum", is_list=category.is_list))
    return _sum(parts)


def deep(encoder: Encoder, features: Sequence[Feature], units: int, arguments: Mapping[str, Any]) -> Any:
    """Hidden layers over all features side by side."""
    numbers = encoder.numbers(features)
    return None if numbers is None else _layers(numbers, units, arguments)


def wide_and_deep(encoder: Encoder, features: Sequence[Feature], units: int, arguments: Mapping[str, Any]) -> Any:
    """The sum of a linear and a deep part (Cheng et al., 2016)."""
    return _sum(
        [
            linear(encoder, _for(features, LINEAR_TARGETS), units),
            deep(encoder, _for(features, DEEP_TARGETS), units, arguments),
        ]
    )


def deep_fm(encoder: Encoder, features: Sequence[Feature], units: int, arguments: Mapping[str, Any]) -> Any:
    """A linear part, products of all pairs of fields' vectors, and a deep part over them (Guo et al., 2017)."""
    width = int(arguments["embedding_dim"])
    fields = []
    numbers = encoder.dense(features)
    if numbers is not None:
        # A number's field is its vector times the number.
        fields.append(NumberFields(width, name="number_vectors")(numbers))
    for place, category in enumerate(encoder.categories(features)):
        table = layers.Embedding(category.size, width, name=f"vectors_{place}")
        vector = pooled(table(category.ids), category.ids, "mean", is_list=category.is_list)
        fields.append(ops.expand_dims(vector, 1))
    vectors = layers.Concatenate(axis=1)(fields) if len(fields) > 1 else fields[0]
    total = ops.sum(vectors, axis=1)
    products = 0.5 * (ops.square(total) - ops.sum(ops.square(vectors), axis=1))
    pairs = layers.Dense(units, name="pairs")(products)
    return _sum([linear(encoder, features, units), pairs, _layers(layers.Flatten()(vectors), units, arguments)])


def cross(encoder: Encoder, features: Sequence[Feature], units: int, arguments: Mapping[str, Any]) -> Any:
    """Cross layers beside hidden layers: DCN-v2 (Wang et al., 2021)."""
    numbers = encoder.numbers(features)
    if numbers is None:
        return None
    crossed = numbers
    for _ in range(int(arguments["cross_layers"])):
        crossed = numbers * layers.Dense(numbers.shape[-1])(crossed) + crossed
    hidden = _hidden(numbers, arguments)
    return layers.Dense(units, name="scores")(layers.Concatenate()([crossed, hidden]))


def own(make: Callable[..., Any], encoder: Encoder, features: Sequence[Feature], units: int, arguments: Any) -> Any:
    """A class or function of a file: it gets all features side by side, or a dict of them by their ``FOR`` targets.

    Raises:
        UserError: it does not take one of the arguments, or does not give ``units`` numbers for each record.
    """
    accepted = inspect.signature(make).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in accepted.values())
    unknown = next((name for name in arguments if name not in accepted and not takes_all), "")
    if unknown:
        hint = did_you_mean(unknown, accepted, f"Its arguments: {', '.join(accepted) or 'none'}.")
        raise UserError(f"{make.__name__} has no argument {unknown!r}", hint=hint)
    given = dict(arguments)
    for name in ("units", "n_classes", "num_classes"):
        if name in accepted:
            given.setdefault(name, units)
    targets = sorted({feature.target for feature in features})
    by_target = {target: encoder.numbers([one for one in features if one.target == target]) for target in targets}
    scores = make(**given)(by_target if any(targets) else by_target[""])
    if tuple(scores.shape[1:]) != (units,):
        raise UserError(
            f"{make.__name__} gives values of shape {tuple(scores.shape[1:])} for a record, and the model needs "
            f"({units},)",
            hint="Give one score for each class (one for two classes, or for a number), without an activation. An "
            "argument 'units' is set to that number.",
        )
    return scores


NETWORKS: Mapping[str, Callable[[Encoder, Sequence[Feature], int, Mapping[str, Any]], Any]] = {
    "DNNClassifier": deep,
    "DNNRegressor": deep,
    "LinearClassifier": lambda encoder, features, units, _: linear(encoder, features, units),
    "LinearRegressor": lambda encoder, features, units, _: linear(encoder, features, units),
    "WideAndDeep": wide_and_deep,
    "DeepFM": deep_fm,
    "DCN": cross,
}


@keras.saving.register_keras_serializable("elasticdl.sql")
class NumberFields(layers.Layer):  # type: ignore[misc]
    """(batch, n) -> (batch, n, width): each number times a vector of its own."""

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = width

    def build(self, shape: Any) -> None:
        """Make the vectors."""
        self.vectors = self.add_weight(shape=(shape[-1], self.width), initializer="uniform", name="vectors")

    def call(self, numbers: Any) -> Any:
        """See the class."""
        return ops.expand_dims(numbers, -1) * self.vectors

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "width": self.width}


def _layers(numbers: Any, units: int, arguments: Mapping[str, Any]) -> Any:
    return layers.Dense(units, name="deep_scores")(_hidden(numbers, arguments))


def _hidden(numbers: Any, arguments: Mapping[str, Any]) -> Any:
    for place, width in enumerate(arguments["hidden_units"]):
        numbers = layers.Dense(int(width), activation="relu", name=f"hidden_{place}")(numbers)
        if arguments.get("dropout"):
            numbers = layers.Dropout(float(arguments["dropout"]))(numbers)
    return numbers


def _for(features: Sequence[Feature], targets: tuple[str, ...]) -> list[Feature]:
    return [feature for feature in features if feature.target in ("", *targets)]


def _sum(parts: Sequence[Any]) -> Any:
    there = [part for part in parts if part is not None]
    if len(there) < 2:
        return there[0] if there else None
    return layers.Add()(there)
