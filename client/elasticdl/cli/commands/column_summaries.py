"""What the values of a column are, for ``elasticdl data inspect``: how many are missing or differ, and their range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elasticdl.shared.data.ragged import ColumnValues, Ragged

DIFFERENT_MAX = 1000
"""Different values of a column that are told apart."""
EXAMPLES = 5
_TEXT_SHOWN = 60


@dataclass(slots=True)
class ColumnSummary:
    """The values of one column.

    Attributes:
        are_texts: values of another type are read as texts, because they can't be read as what they are.
        missing: empty texts and NaN; in lists and arrays of each of their values.
        least: number; None: the column has none.
        greatest: likewise.
        lengths: least and greatest length of a list, or number of characters or bytes; None: neither.
        different: values in the order in which they appear, at most one more than ``DIFFERENT_MAX``.
    """

    are_texts: bool = False
    missing: int = 0
    least: int | float | None = None
    greatest: int | float | None = None
    lengths: tuple[int, int] | None = None
    different: dict[Any, None] = field(default_factory=dict)

    def add(self, column: ColumnValues) -> None:
        """Add the values of the next records, at least one."""
        if isinstance(column, Ragged):
            self._add_lengths(np.diff(column.splits))
        values = column.values if isinstance(column, Ragged) else column
        is_flat = not isinstance(column, Ragged) and values.ndim == 1
        values = values.reshape(-1)
        present: list[Any] = []
        if self.are_texts:
            present = [_parsed(text) for text in values.tolist() if text]
            self.missing += len(values) - len(present)
            if present and not any(isinstance(value, str) for value in present):
                self._add_ends(min(present), max(present))
        elif values.dtype.kind in "OSU":
            present = [value for value in values.tolist() if value]
            self.missing += len(values) - len(present)
            if is_flat and present:
                self._add_lengths(np.fromiter(map(len, present), np.int64, len(present)))
        else:
            absent = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
            self.missing += int(absent.sum())
            numbers = values[~absent]
            if numbers.size:
                self._add_ends(numbers.min().item(), numbers.max().item())
            present = numbers.tolist() if is_flat else []
        if is_flat:
            for value in present:
                if len(self.different) > DIFFERENT_MAX:
                    break
                self.different[value] = None

    def facts(self) -> dict[str, Any]:
        """For JSON; a value that JSON does not know is a text."""
        ends = {"least": _plain(self.least), "greatest": _plain(self.greatest)}
        lengths = {"lengths": list(self.lengths)} if self.lengths else {}
        different = {"different": self._count, "examples": [_plain(value) for value in self._examples]}
        return {
            "missing": self.missing,
            **(ends if self.least is not None else {}),
            **lengths,
            **(different if self.different else {}),
        }

    def describe(self, kind: str) -> str:
        """The same for people, of a column of a type; without missing numbers, which are a remark of the planning."""
        parts = []
        is_few = 0 < len(self.different) <= EXAMPLES
        if self.missing and kind == "string":
            parts.append(f"{self.missing:,} empty")
        if self.least is not None and not is_few:
            parts.append(f"{self.least} to {self.greatest}")
        if self.lengths:
            unit = "characters" if kind == "string" else "bytes" if kind == "binary" else "values in a list"
            parts.append(f"{self.lengths[0]:,} to {self.lengths[1]:,} {unit}")
        if self.different and kind != "binary":
            shown = ", ".join(map(shortened, self._examples))
            parts.append(f"values {shown}" if is_few else f"{self._count} different values, such as {shown}")
        return "; ".join(parts)

    @property
    def _count(self) -> int | str:
        return len(self.different) if len(self.different) <= DIFFERENT_MAX else f"more than {DIFFERENT_MAX:,}"

    @property
    def _examples(self) -> list[Any]:
        return list(self.different)[:EXAMPLES]

    def _add_ends(self, least: Any, greatest: Any) -> None:
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)

    def _add_lengths(self, lengths: Any) -> None:
        ends = int(lengths.min()), int(lengths.max())
        known = self.lengths or ends
        self.lengths = min(known[0], ends[0]), max(known[1], ends[1])


def add_block(summaries: Mapping[str, ColumnSummary], columns: Mapping[str, ColumnValues]) -> None:
    """Add the next records to the summaries of their columns."""
    for name, summary in summaries.items():
        summary.add(columns[name])


def shortened(value: object) -> str:
    """A value for people; of a long list the first values."""
    if isinstance(value, list):
        more = f", ... ({len(value):,} values)" if len(value) > EXAMPLES else ""
        return f"[{', '.join(map(shortened, value[:EXAMPLES]))}{more}]"
    text = repr(value)
    return text if len(text) <= _TEXT_SHOWN else text[:_TEXT_SHOWN] + "..."


def _parsed(text: str) -> bool | int | float | str:
    """A number as pyarrow reads it from CSV, or a boolean; dates and times, for instance of Parquet, stay texts."""
    if text in ("true", "false"):
        return text == "true"
    for parse in (int, float, lambda digits: int(digits, 16)):
        try:
            return parse(text)
        except ValueError:
            pass
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value
