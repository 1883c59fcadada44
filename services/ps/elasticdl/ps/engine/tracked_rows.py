"""A table whose rows are admitted by count, expire, or both (ADR 13).

Both are functions of what a snapshot holds: a row's last update is a number in its slab, and the candidates, ids that
have no row yet, are the rows of a store of their own. A row that has expired counts as missing at once, wherever it is
still stored. When it is removed therefore changes nothing, and neither does a removed row that comes back with the
base of an incremental snapshot.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.kernels import tracking
from elasticdl.ps.engine.optimizers import Update
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.ps.engine.rows import RowStore
from elasticdl.shared.model.partitioning import partitions_of
from elasticdl.shared.model.placement import PARTITIONS
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.signature import Optimizer, RowInitializer, RowTable

ADMITTED, DROPPED = 0, 1
"""Rows of ``tallies``."""
_NO_SLOTS = Optimizer(name="sgd", learning_rate=0.0)
_SWEPT_ROWS_MIN = 64
"""Each push checks this many rows for expiry, plus two for each row that it touches."""
_COUNTED_ROWS = 1 << 16

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFigures:
    """What a table holds in some partitions, and what has happened to it since training began.

    Attributes:
        candidates: ids that were seen, but not often enough yet.
        admitted: how often a row was stored, counting again those that had expired, and the rows of a warm start.
        dropped: gradients of single rows that were dropped because their ids were candidates.
    """

    rows: int
    candidates: int
    admitted: int
    dropped: int

    @property
    def expired(self) -> int:
        """How often a row expired."""
        return self.admitted - self.rows


class SweptRowStore(RowStore):
    """Rows that expire, and are removed in small steps."""

    def __init__(self, table: RowTable, optimizer: Optimizer, seed: int, timeline: Timeline) -> None:
        super().__init__(table, optimizer, seed, timeline)
        self._sweep_stop = 0

    def present(self, wanted: Mask) -> int:
        """How many rows of the wanted partitions, bool by partition, have not expired."""
        found = 0
        for start in range(0, self.rows, _COUNTED_ROWS):
            stop = min(start + _COUNTED_ROWS, self.rows)
            present = wanted[partitions_of(self.index.ids[start:stop])] & ~self.removable(start, stop)
            found += int(np.count_nonzero(present))
        return found

    @abstractmethod
    def removable(self, start: int, stop: int) -> Mask:
        """bool[stop - start]: whether the row with an index in ``[start, stop)`` may be removed."""

    def _places(self) -> NDArray[np.int32]:
        """int32[rows, slab_width]: the slabs, read as numbers of updates."""
        return self._slabs().view(np.int32)

    def _expired(self, start: int, stop: int) -> Mask:
        if not self.table.expire_after:
            return np.zeros(stop - start, np.bool_)
        now = self.timeline.updates_of(self.index.ids[start:stop])
        return now - self.slab_ends()[start:stop] >= self.table.expire_after

    def _sweep(self, touched: int) -> None:
        """Remove some rows that have expired; the caller holds the lock. Rows from the end take their places."""
        if self.cuts:
            return
        stop = min(self._sweep_stop, self.rows) or self.rows
        start = max(0, stop - 2 * touched - _SWEPT_ROWS_MIN)
        found = start + np.flatnonzero(self.removable(start, stop))[::-1]
        if found.size:
            self._remove(np.ascontiguousarray(found))
        self._sweep_stop = start


class Candidates(SweptRowStore):
    """Ids without a row, and how many updates have had a gradient for each; 0: the id got its row.

    Args:
        has_row: (ids int64[n]) -> bool[n], which of them have rows that have not expired.
    """

    def __init__(self, table: RowTable, has_row: Callable[[Ids], Mask], timeline: Timeline) -> None:
        counts = RowTable(
            name=f"{table.name} (candidates)",
            width=1,
            initializer=RowInitializer(distribution="zeros"),
            input_dim=table.input_dim,
            expire_after=table.expire_after,
        )
        super().__init__(counts, _NO_SLOTS, 0, timeline)
        self._has_row = has_row
        self._min_count = table.min_count

    def count(self, ids: Ids, now: int) -> Mask:
        """Count an update, after ``now`` others, of unique ids int64[n]; returns bool[n]: whether each gets its row."""
        admitted = np.empty(ids.size, np.bool_)
        with self._locked():
            self._reserve(ids.size)
            row_indices = self._touch(ids)
            numbers = self.state.view(np.int32)
            expire_after = self.table.expire_after
            tracking.count(numbers, row_indices, self.slab_width, self._min_count, now, expire_after, admitted)
            self._sweep(ids.size)
        return admitted

    def removable(self, start: int, stop: int) -> Mask:
        """Whether an id got its row, or was not seen for too long."""
        ids = self.index.ids[start:stop]
        # One that was removed, and came back with the base of an incremental snapshot, has its row already. While
        # partitions are moving in, their time is not known, and a row may have expired.
        has_row = self._has_row(ids) & (self.timeline.updates_of(ids) > 0)
        removable: Mask = (self._places()[start:stop, 0] == 0) | has_row | self._expired(start, stop)
        return removable


class TrackedRowStore(SweptRowStore):
    """A table with ``min_count`` or ``expire_after``."""

    def __init__(self, table: RowTable, optimizer: Optimizer, seed: int, timeline: Timeline) -> None:
        super().__init__(table, optimizer, seed, timeline)
        self.candidates = Candidates(table, self._has_row, timeline) if table.has_candidates else None
        self.tallies = np.zeros((2, PARTITIONS), np.int64)
        """By partition: rows ``ADMITTED`` and gradients ``DROPPED``. Groups save those of their partitions."""

    def reserve(self, rows: int) -> None:
        """As ``RowStore.reserve``, and for as many candidates."""
        super().reserve(rows)
        if self.candidates is not None:
            self.candidates.reserve(rows)

    def push(self, gradients: RowGradients, update: Update) -> None:
        """As ``RowStore.push``, without the gradients of candidates; an expired row starts from its initial value."""
        admitted = self._admitted(gradients.ids, update.iteration)
        if admitted is not None:
            self._tally(DROPPED, gradients.ids[~admitted])
            gradients = gradients.only(admitted)
        ids = gradients.ids
        if not ids.size:
            return
        with self._locked():
            self._reserve(ids.size)
            before = self.rows
            row_indices = self._touch(ids)
            new = row_indices >= before
            if self.table.expire_after:
                new |= self._renew(ids, row_indices, ~new, update.iteration)
            self._tally(ADMITTED, ids[new])
            self._update(row_indices, gradients, update)
            if self.table.expire_after:
                self._sweep(ids.size)

    def load_weights(self, ids: Ids, weights: Floats) -> None:
        """As ``RowStore.load_weights``; the rows count as admitted, and as touched before the first update."""
        super().load_weights(ids, weights)
        self._tally(ADMITTED, ids)

    def stored_weights(self, start: int, stop: int) -> tuple[Ids, Floats]:
        """As ``RowStore.stored_weights``, without rows that have expired."""
        ids, weights = super().stored_weights(start, stop)
        kept = ~self.removable(start, start + ids.size)
        return ids[kept], weights[kept]

    def removable(self, start: int, stop: int) -> Mask:
        """Whether a row has expired."""
        return self._expired(start, stop)

    def figures(self, wanted: Mask) -> TableFigures:
        """What is in the wanted partitions, bool by partition. It looks at every row."""
        admitted, dropped = self.tallies[:, wanted].sum(axis=1).tolist()
        return TableFigures(
            rows=self.present(wanted),
            candidates=self.candidates.present(wanted) if self.candidates is not None else 0,
            admitted=admitted,
            dropped=dropped,
        )

    def _look_up(self, ids: Ids) -> tuple[Ids, int]:
        """Row indices int64[n], negative for missing rows, and how many of these there are."""
        row_indices, missing = self.index.look_up(ids)
        if self.table.expire_after:
            missing += self._leave_out_expired(row_indices, self.timeline.updates_of(ids))
        return row_indices, missing

    def _has_row(self, ids: Ids) -> Mask:
        return self._look_up(ids)[0] >= 0

    def _admitted(self, ids: Ids, now: int) -> Mask | None:
        """bool[n]: whether an id has a row or gets one; None: all do."""
        if self.candidates is None or not ids.size:
            return None
        row_indices, missing = self.index.look_up(ids)
        if self.table.expire_after:
            missing += self._leave_out_expired(row_indices, np.full(ids.size, now, np.int32))
        if not missing:
            return None
        admitted = row_indices >= 0
        admitted[~admitted] = self.candidates.count(ids[~admitted], now)
        return None if admitted.all() else admitted

    def _renew(self, ids: Ids, row_indices: Ids, old: Mask, now: int) -> Mask:
        """Give initial values to the old rows that have expired; returns which, bool[n]."""
        left = row_indices.copy()
        self._leave_out_expired(left, np.full(ids.size, now, np.int32))
        renewed: Mask = old & (left < 0)
        if renewed.any():
            fresh = np.empty((np.count_nonzero(renewed), self.slab_width), np.float32)
            self.initializer.fill(ids[renewed], fresh.reshape(-1), self.slab_width)
            fresh[:, self.table.width :] = self._fresh_slots
            self._slabs()[row_indices[renewed]] = fresh
        return renewed

    def _leave_out_expired(self, row_indices: Ids, now: NDArray[np.int32]) -> int:
        return tracking.leave_out_expired(
            self.state.view(np.int32), row_indices, self.slab_width, now, self.table.expire_after
        )

    def _tally(self, what: int, ids: Ids) -> None:
        if ids.size:
            self.tallies[what] += np.bincount(partitions_of(ids), minlength=PARTITIONS)


def row_store(table: RowTable, optimizer: Optimizer, seed: int, timeline: Timeline) -> RowStore:
    """The store of a table; a plain one if nothing has to be tracked."""
    return (TrackedRowStore if table.is_tracked else RowStore)(table, optimizer, seed, timeline)
