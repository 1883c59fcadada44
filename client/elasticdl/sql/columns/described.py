"""The features that a statement describes, fitted to the training rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elasticdl.sql.columns import building, functions
from elasticdl.sql.columns.building import Inputs
from elasticdl.sql.columns.derivation import BUCKETS_MAX, BUCKETS_PER_VALUE, VOCABULARY_MAX, derive
from elasticdl.sql.columns.features import Input, Node
from elasticdl.sql.columns.fitting import Fitter
from elasticdl.sql.columns.functions import Spec
from elasticdl.sql.columns.profile import Profile
from elasticdl.sql.statements import Fault, StatementError

_NUMBERS = ("boolean", "integer", "number", "decimal", "time")


def fit(spec: Spec, profiles: Mapping[str, Profile], inputs: Inputs, fitter: Fitter) -> Node:
    """The feature of an expression, with its parameters.

    Raises:
        StatementError: a column has not the type that its function needs.
    """
    return _Fit(profiles, inputs, fitter).feature(spec)


class _Fit:
    def __init__(self, profiles: Mapping[str, Profile], inputs: Inputs, fitter: Fitter) -> None:
        self._profiles = profiles
        self._inputs = inputs
        self._fitter = fitter

    def feature(self, spec: Spec) -> Node:
        """Numbers, or a category that the network shows as it likes."""
        match spec.function:
            case "":
                return self._derived(spec)
            case "NUMERIC" | "STANDARDIZE":
                if spec.arguments.get("shape", 1) != 1 or self._source(spec) == "numbers":
                    return building.vector(self._vector_input(spec), self._fitter)
                return building.scaled(self._number_input(spec), self._fitter)
            case "NORMALIZE":
                return self._normalized(spec)
            case "DENSE" | "SPARSE":
                return building.vector(self._vector_input(spec), self._fitter)
            case functions.WEIGHTED:
                return self._weighted(spec)
            case "EMBEDDING" | "INDICATOR" if spec.parts[0].function == functions.WEIGHTED:
                return self._weighted(spec.parts[0], spec)
            case "EMBEDDING":
                dimension = int(spec.arguments["dimension"] or 0)
                return building.embedded(self.category(spec.parts[0]), dimension, spec.arguments["combiner"])
            case "INDICATOR":
                return building.indicator(self.category(spec.parts[0]))
            case _:
                return building.shown(self.category(spec))

    def category(self, spec: Spec) -> Node:
        """Places of a category; a column becomes one by its values."""
        match spec.function:
            case "":
                return self._vocabulary(spec, VOCABULARY_MAX)
            case "VOCABULARIZE":
                return self._vocabulary(spec.parts[0], int(spec.arguments["max_size"]), is_exact=True)
            case "BUCKET":
                return self._bucket(spec, spec.arguments["boundaries"])
            case "BUCKETIZE":
                one = self._number_input(spec)
                return self._bucket(spec, self._fitter.quantiles(one, int(spec.arguments["num_buckets"])))
            case "CATEGORY_HASH" | "HASH":
                one = self._text_input(spec.parts[0])
                buckets = spec.arguments["size"] or BUCKETS_PER_VALUE * max(1, self._fitter.distinct(one))
                return Node(operation="hash", input=one.name, values={"buckets": min(int(buckets), BUCKETS_MAX)})
            case "CATEGORY_ID" | "SEQ_CATEGORY_ID":
                return self._identity(spec)
            case "CROSS":
                parts = tuple(self.category(part) for part in spec.parts)
                self._check_no_lists(spec, parts)
                return Node(operation="cross", of=parts, values={"buckets": int(spec.arguments["size"])})
            case _:
                parts = tuple(self.category(part) for part in spec.parts)
                self._check_no_lists(spec, parts)
                return Node(operation="concat", of=parts)

    # --- kinds of features -----------------------------------------------------------------------------------------

    def _derived(self, spec: Spec) -> Node:
        """A column without a function: as it would be derived, also if it would be left out."""
        profile = self._profiles[spec.column]
        decision = derive(profile)
        if decision.use == "out":
            if profile.source in _NUMBERS:
                decision = replace(decision, use="number")
            elif profile.source == "text":
                return building.shown(self._vocabulary(spec, VOCABULARY_MAX))
            else:
                raise _fault(spec, f"{spec.column!r} can't be a feature: {decision.reason}.")
        (feature,) = building.features_of([decision], self._profiles, self._inputs, self._fitter)
        return feature.node

    def _normalized(self, spec: Spec) -> Node:
        one = self._number_input(spec)
        moments = self._fitter.moments(one)
        width = moments.high - moments.low
        values = {"shift": moments.low, "scale": width or 1.0, "missing": moments.nulls > 0}
        return Node(operation="number", input=one.name, values=values)

    def _vocabulary(self, spec: Spec, most: int, *, is_exact: bool = False) -> Node:
        one = self._text_input(spec)
        if not is_exact and self._profiles[one.column].distinct > most:
            buckets = min(BUCKETS_PER_VALUE * self._profiles[one.column].distinct, BUCKETS_MAX)
            return Node(operation="hash", input=one.name, values={"buckets": buckets})
        return building.vocabulary(one, self._fitter, most)

    def _bucket(self, spec: Spec, boundaries: list[float]) -> Node:
        one = self._number_input(spec)
        return Node(operation="bucket", input=one.name, values={"boundaries": boundaries})

    def _weighted(self, spec: Spec, shown: Spec | None = None) -> Node:
        """Ids with weights: a vector of the weights of all ids, and the category of each place of it.

        Args:
            shown: how the statement wants it; None: by the number of places.
        """
        category = spec.parts[0]
        weights = self._vector_input(category.parts[0])
        size = int(category.arguments["size"])
        is_hash = category.function == "CATEGORY_HASH"
        values = {"buckets": min(size, BUCKETS_MAX)} if is_hash else {"size": size}
        inner = Node(operation="hash" if is_hash else "identity", values=values)
        is_indicator = shown.function == "INDICATOR" if shown else building.places(inner) <= building.INDICATOR_MAX + 2
        if is_indicator:
            return Node(operation="weighted_indicator", input=weights.name, of=(inner,))
        dimension, combiner = (shown.arguments["dimension"], shown.arguments["combiner"]) if shown else (0, "sum")
        embedding = building.embedded(inner, int(dimension or 0), combiner)
        return Node(operation="weighted_embedding", input=weights.name, of=(inner,), values=embedding.values)

    def _identity(self, spec: Spec) -> Node:
        column, size = next(spec.all_columns()), int(spec.arguments["size"])
        source = self._profiles[column].source
        if spec.function == "SEQ_CATEGORY_ID" or spec.parts[0].function == "SPARSE" or source == "numbers":
            delimiter = self._delimiter(spec, source)
            one = self._inputs.add(column, "ids", source, size=size, delimiters=(delimiter, ""))
        else:
            one = self._inputs.add(column, "id", source, size=size)
        return Node(operation="identity", input=one.name, values={"size": size})

    # --- inputs ----------------------------------------------------------------------------------------------------

    def _source(self, spec: Spec) -> str:
        return self._profiles[next(spec.all_columns())].source

    def _number_input(self, spec: Spec) -> Input:
        column = next(spec.all_columns())
        profile = self._profiles[column]
        if profile.source not in _NUMBERS and not profile.numeric:
            raise _fault(spec, f"{spec.function} needs numbers, and {column!r} is {profile.shown_type}.")
        return self._inputs.add(column, "number", profile.source)

    def _text_input(self, spec: Spec) -> Input:
        column = next(spec.all_columns())
        profile = self._profiles[column]
        if profile.source == "other":
            raise _fault(spec, f"{column!r} is {profile.shown_type}, which can't be a category.")
        is_list = profile.source in ("texts", "numbers")
        if spec.function == "SPARSE":
            delimiters = (self._delimiter(spec, profile.source), "")
            return self._inputs.add(column, "texts", profile.source, delimiters=delimiters)
        return self._inputs.add(column, "texts" if is_list else "text", profile.source)

    def _vector_input(self, spec: Spec) -> Input:
        column, arguments = next(spec.all_columns()), spec.arguments
        profile = self._profiles[column]
        if profile.source not in ("numbers", "text"):
            raise _fault(spec, f"{spec.function} needs a list or a text, and {column!r} is {profile.shown_type}.")
        size = int(arguments.get("shape") or profile.high or 1)
        pairs = str(arguments.get("delim_kv") or "")
        if spec.function == "SPARSE" and not pairs:
            hint = "For ids: EMBEDDING(SEQ_CATEGORY_ID(column, n), 8). For index:number pairs give delim_kv=':'."
            raise _fault(spec, "SPARSE without delim_kv gives ids, which are not a feature by themselves.", hint)
        delimiters = (self._delimiter(spec, profile.source), pairs)
        return self._inputs.add(column, "vector", profile.source, size=size, delimiters=delimiters)

    def _delimiter(self, spec: Spec, source: str) -> str:
        """Of the texts that are lists; empty: the column has lists."""
        if source != "text":
            return ""
        inner = spec.parts[0] if spec.parts and spec.parts[0].function else spec
        return str(inner.arguments.get("delim") or ",")

    def _check_no_lists(self, spec: Spec, parts: tuple[Node, ...]) -> None:
        kinds = {one.name: one.kind for one in self._inputs.all()}
        if any(kinds[name] in ("texts", "ids") for part in parts for name in part.inputs()):
            raise _fault(spec, f"{spec.function} takes no lists.")


def _fault(spec: Spec, message: str, hint: str = "") -> StatementError:
    return StatementError([Fault(message, spec.position, max(1, len(spec.function or spec.column)), hint)])
