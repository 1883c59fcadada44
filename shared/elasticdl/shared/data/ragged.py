"""Lists of varying length: one for each record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ragged:
    """The lists of a column, as in ``tf.RaggedTensor``.

    Attributes:
        values: the elements of all lists, shape ``[elements]``.
        splits: int64, where each record's list begins in ``values``, and the end; shape ``[records + 1]``.
    """

    values: npt.NDArray[np.generic]
    splits: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.splits) - 1

    @classmethod
    def joined(cls, parts: Sequence[Ragged]) -> Ragged:
        """The lists of several columns, one after the other."""
        splits = [np.zeros(1, np.int64)]
        for part in parts:
            splits.append(part.splits[1:] + splits[-1][-1])
        return cls(values=np.concatenate([part.values for part in parts]), splits=np.concatenate(splits))

    def take(self, places: slice | npt.NDArray[np.int64]) -> Ragged:
        """The lists of some of the records; a view of the values for a slice."""
        if isinstance(places, slice):
            start, stop, _ = places.indices(len(self))
            splits = self.splits[start : max(start, stop) + 1]
            return Ragged(values=self.values[splits[0] : splits[-1]], splits=splits - splits[0])
        lengths = np.diff(self.splits)[places]
        splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        moved = np.repeat(self.splits[places] - splits[:-1], lengths)
        return Ragged(values=self.values[moved + np.arange(splits[-1])], splits=splits)

    def tolist(self) -> list[list[object]]:
        """As nested Python lists."""
        return [self.values[start:end].tolist() for start, end in zip(self.splits[:-1], self.splits[1:], strict=True)]


ColumnValues = npt.NDArray[np.generic] | Ragged
Columns = dict[str, ColumnValues]
