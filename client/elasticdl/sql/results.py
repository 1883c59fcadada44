"""What statements return and what they tell while they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Table:
    """Rows to show; ``is_cut``: there are more."""

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_cut: bool = False

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame of the rows; needs pandas (``pip install 'elasticdl[notebook]'``)."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a statement.

    Attributes:
        statement: its text.
        kind: such as ``train`` or ``show models``.
        table: rows: of the query, the models, the metrics, the importances; None: there are none.
        text: what was asked for, if it is a text.
        model: such as ``my_model@3``, of a training.
        job: id of the job that ran; empty: none.
        metrics: of a training or an evaluation.
        columns: name, use and reason of each column of a training.
        into: the table that was written; ``rows``: its number of rows, or of those that a model was trained with.
    """

    statement: str
    kind: str
    table: Table | None = None
    text: str = ""
    model: str = ""
    job: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    columns: tuple[tuple[str, str, str], ...] = ()
    into: str = ""
    rows: int | None = None

    def to_pandas(self) -> pd.DataFrame:
        """The table as a DataFrame.

        Raises:
            ValueError: the statement has no rows.
        """
        if self.table is None:
            raise ValueError(f"the statement has no rows: {self.statement}")
        return self.table.to_pandas()

    def _repr_html_(self) -> str:
        """In a notebook: the table."""
        return self.to_pandas()._repr_html_() if self.table else f"<pre>{self!r}</pre>"


class Display(Protocol):
    """Where a running statement tells what it does."""

    def line(self, text: str) -> None:
        """Show a sentence."""

    def table(self, title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show rows."""


def from_arrow(table: pa.Table, *, is_cut: bool = False) -> Table:
    """The rows of an Arrow table."""
    columns = [_values(column) for column in table.columns]
    return Table(tuple(table.column_names), tuple(zip(*columns, strict=True)), is_cut)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; of dates that Python has not, such as ``infinity``, texts."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_value(cell) for cell in column]


def _value(cell: pa.Scalar) -> Any:
    import pyarrow as pa

    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        try:
            return cell.cast(pa.string()).as_py()
        except NotImplementedError:
            return "<value out of range>"


def metrics_table(metrics: Mapping[str, float]) -> Table:
    """One row for each metric."""
    return Table(("metric", "value"), tuple(metrics.items()))
