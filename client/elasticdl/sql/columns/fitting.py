"""Parameters of features: statistics and vocabularies of the training rows, each by a query that DuckDB computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticdl.sql.columns.derivation import VOCABULARY_MAX
from elasticdl.sql.columns.features import Input
from elasticdl.sql.columns.prepared import expression
from elasticdl.sql.columns.profile import Source
from elasticdl.sql.databases.port import quoted
from elasticdl.sql.snapshot import Snapshot

_AT_ONCE, _TEXTS_AT_ONCE = 200, 50
_VALUE = "v"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Of the values of a number in the training rows."""

    mean: float
    deviation: float
    low: float
    high: float
    nulls: int


class Fitter:
    """Asks the training rows.

    Args:
        training: the rows, without those for validation.
        sources: kind of each column.
    """

    def __init__(self, training: Snapshot, sources: Mapping[str, Source]) -> None:
        self._training = training
        self._sources = sources
        self._moments: dict[str, Moments] = {}
        self._vocabularies: dict[str, list[str]] = {}

    def fit_moments(self, inputs: Sequence[Input]) -> None:
        """Compute the moments of many inputs with few queries."""
        waiting = [each for each in inputs if each.kind in ("number", "day") and each.name not in self._moments]
        for start in range(0, len(waiting), _AT_ONCE):
            part = waiting[start : start + _AT_ONCE]
            selected = [one for each in part for one in _aggregates(self._expression(each))]
            row = [column[0].as_py() for column in self._training.query(selected).columns]
            for place, each in enumerate(part):
                mean, deviation, low, high, nulls = row[place * 5 : place * 5 + 5]
                self._moments[each.name] = Moments(
                    mean=float(mean or 0), deviation=float(deviation or 0), low=float(low or 0), high=float(high or 0),
                    nulls=nulls,
                )  # fmt: skip

    def moments(self, one: Input) -> Moments:
        """Of a number."""
        self.fit_moments([one])
        return self._moments[one.name]

    def vector_moments(self, one: Input) -> tuple[list[float], list[float]]:
        """Means and deviations of the elements of a vector."""
        if self._training.rows == 0:
            return [0.0] * one.size, [1.0] * one.size
        value = self._expression(one)
        unnested = f"unnest(CAST({value} AS DOUBLE[])) AS {_VALUE}, generate_subscripts({value}::DOUBLE[], 1) AS place"
        rows = self._training.query([unnested])
        import pyarrow.compute as pc

        grouped = rows.group_by("place").aggregate([(_VALUE, "mean"), (_VALUE, "stddev")]).sort_by("place")
        means = pc.fill_null(grouped.column(f"{_VALUE}_mean"), 0.0).to_pylist()
        deviations = pc.fill_null(grouped.column(f"{_VALUE}_stddev"), 0.0).to_pylist()
        return means, [each or 1.0 for each in deviations]

    def quantiles(self, one: Input, buckets: int) -> list[float]:
        """Boundaries between intervals with about as many rows each; fewer than asked for if values repeat."""
        shares = [place / buckets for place in range(1, buckets)]
        value = self._expression(one)
        found = self._training.query([f"quantile_disc({value}, {shares})"]).column(0)[0].as_py() or []
        return sorted({float(each) for each in found if each is not None})

    def fit_vocabularies(self, inputs: Sequence[Input]) -> None:
        """Find the vocabularies of many texts with few queries, each of at most ``VOCABULARY_MAX`` values."""
        waiting = [each for each in inputs if each.kind == "text" and each.name not in self._vocabularies]
        for start in range(0, len(waiting), _TEXTS_AT_ONCE):
            part = waiting[start : start + _TEXTS_AT_ONCE]
            values = ", ".join(self._expression(each) for each in part)
            table = self._training.query(
                [f"place, {_VALUE} FROM (SELECT unnest(range({len(part)})) AS place, unnest([{values}]) AS {_VALUE}"],
                f") WHERE {_VALUE} <> '' GROUP BY place, {_VALUE} "
                f"QUALIFY row_number() OVER (PARTITION BY place ORDER BY count(*) DESC, {_VALUE}) <= {VOCABULARY_MAX} "
                f"ORDER BY place, count(*) DESC, {_VALUE}",
            )
            found: list[list[str]] = [[] for _ in part]
            for place, value in zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True):
                found[place].append(value)
            self._vocabularies |= {each.name: words for each, words in zip(part, found, strict=True)}

    def vocabulary(self, one: Input, most: int) -> list[str]:
        """The values of a text or a list of texts, frequent ones first, without NULL and the empty text.

        Args:
            most: values; the rarest ones are left out.
        """
        if one.kind == "text" and most <= VOCABULARY_MAX:
            self.fit_vocabularies([one])
            return self._vocabularies[one.name][:most]
        value = self._expression(one)
        if one.kind == "texts":
            value = f"unnest({value})"
        table = self._training.query(
            [f"{_VALUE} FROM (SELECT {value} AS {_VALUE}"],
            f") WHERE {_VALUE} <> '' GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT {most}",
        )
        return [str(each) for each in table.column(0).to_pylist()]

    def distinct(self, one: Input) -> int:
        """How many different values a text has."""
        value = self._expression(one)
        if one.kind == "texts":
            value = f"unnest({value})"
        table = self._training.query(
            [f"count(DISTINCT {_VALUE}) FROM (SELECT {value} AS {_VALUE}"], f") WHERE {_VALUE} <> ''"
        )
        return int(table.column(0)[0].as_py())

    def label_moments(self, column: str) -> tuple[float, float]:
        """Mean and standard deviation of a label; the deviation is never 0."""
        value = f"TRY_CAST({quoted(column)} AS DOUBLE)"
        mean, deviation = self._training.query([f"avg({value})", f"stddev_pop({value})"]).columns
        return float(mean[0].as_py() or 0), float(deviation[0].as_py() or 0) or 1.0

    def classes(self, column: str, most: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The texts of a label's different values, in the order of the values, and the rows of each."""
        name = quoted(column)
        rest = f"WHERE {name} IS NOT NULL GROUP BY {name} ORDER BY {name} LIMIT {most}"
        table = self._training.query([f"CAST({name} AS VARCHAR)", "count(*)"], rest)
        return tuple(table.column(0).to_pylist()), tuple(table.column(1).to_pylist())

    def _expression(self, one: Input) -> str:
        return expression(one, self._sources[one.column])


def _aggregates(value: str) -> list[str]:
    return [
        f"avg({value})", f"stddev_pop({value})", f"min({value})", f"max({value})", f"count(*) - count({value})"
    ]  # fmt: skip
