"""The map from ids to row indices, growing, with its inverse."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.kernels import index as kernels

_PAIRS_MIN = 64
_LOAD_MAX = 0.6
"""Share of used pairs above which the table doubles: 1.75 probes for a hit, 3.6 for a miss at worst."""


class IdIndex:
    """Numbers ids 0, 1, 2... in the order of their insertion; every int64 is a legal id.

    Not thread-safe; all calls release the GIL while they work.
    """

    __slots__ = ("_ids", "_rows_max", "_table", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._table = _empty_table(_PAIRS_MIN)
        self._ids = np.empty(0, np.int64)
        self._rows_max = 0
        """Ids for which there is room."""

    def __len__(self) -> int:
        return self.rows

    @property
    def ids(self) -> NDArray[np.int64]:
        """int64[len(self)], the id of each row: a view that is valid until the next ``reserve``."""
        return self._ids[: self.rows]

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self._table.nbytes + self._ids.nbytes

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[n] row indices, -1 where the id is unknown."""
        return self.look_up(ids)[0]

    def look_up(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """``find``, and how many of the ids are unknown."""
        row_indices = np.empty(ids.size, np.int64)
        unknown = kernels.find(self._table, ids, row_indices)
        return row_indices, unknown

    def insert(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[n] row indices; unknown ids get the next ones. Repeated ids get one row."""
        if self.rows + ids.size > self._rows_max:
            self.reserve(ids.size)
        row_indices = np.empty(ids.size, np.int64)
        self.rows = kernels.insert(self._table, ids, row_indices, self._ids, self.rows)
        return row_indices

    def remove(self, row_indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Forget the ids of ``row_indices`` int64[n], unique and descending; ids at the end take their places.

        Returns:
            int64[n], the row indices that they come from; what belongs to them has to be moved in this order.
        """
        sources = np.empty(row_indices.size, np.int64)
        kernels.remove(self._table, self._ids, self.rows, row_indices, sources)
        self.rows -= row_indices.size
        return sources

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` more ids. Raises ``MemoryError``: there is no room; nothing has changed."""
        needed = self.rows + rows
        if needed <= self._rows_max:
            return
        pairs = self._table.size // 2
        if needed > self._ids.size:
            grown = np.empty(max(needed, self._ids.size * 5 // 4), np.int64)
            grown[: self.rows] = self.ids
            self._ids = grown
        if needed > pairs * _LOAD_MAX:
            while needed > pairs * _LOAD_MAX:
                pairs *= 2
            table = _empty_table(pairs)
            kernels.insert(table, self.ids, np.empty(self.rows, np.int64), self._ids, 0)
            self._table = table
        self._rows_max = min(self._ids.size, int(pairs * _LOAD_MAX))


def _empty_table(pairs: int) -> NDArray[np.int64]:
    return np.full(2 * pairs, kernels.EMPTY, np.int64)
