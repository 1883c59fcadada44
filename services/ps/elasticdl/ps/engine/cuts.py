"""A copy-on-write view of a table's rows at one moment, for snapshots and evaluation pins."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.index import IdIndex
from elasticdl.ps.engine.kernels import slabs
from elasticdl.ps.engine.pages import Pages
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.model.partitioning import partitions_of
from elasticdl.shared.model.rows.missed_updates import MissedUpdates
from elasticdl.shared.model.rows.timeline import Timeline, updates_of
from elasticdl.shared.model.signature import RowTable


class Rows(Protocol):
    """What a cut needs of the store that it is a cut of: ``RowStore``, where these are documented."""

    table: RowTable
    slab_width: int
    lock: Lock
    index: IdIndex
    state: NDArray[np.float32]
    changed: NDArray[np.int32]
    generation: int
    snapshotted: int
    cuts: list[RowCut]
    timeline: Timeline
    missed: MissedUpdates | None
    has_updates: bool
    owner_idle: Event

    @property
    def rows(self) -> int:
        """Number of stored rows."""

    def check_pull(self, ids: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """Refuse a pull that can't be answered."""

    def fill_missing(
        self,
        ids: NDArray[np.int64],
        row_indices: NDArray[np.int64],
        limit: int,
        updates: NDArray[np.int32],
        out: NDArray[np.float32],
    ) -> None:
        """Write the values that untrained rows have after this many updates."""


EVERYTHING = -1
"""A generation after which every row has changed."""
_LOCKED_BYTES = 1 << 20
"""Bytes of rows that are copied before a waiting push gets its turn: about a millisecond."""
_ROWS_MORE = 512
"""Rows that may be added between the making of a cut's memory and the cut."""
_TOUCHED_BYTES = 64 << 20
"""Memory that is touched in advance for rows that will be saved: a push would take it a page at a time."""


class CutRoom:
    """Memory for a cut, made and touched in advance: the first push would cause thousands of page faults.

    Args:
        rows: rows that the store has now; there is room for a few more.
    """

    def __init__(self, rows: int, slab_width: int) -> None:
        self.rows = rows + rows // 64 + _ROWS_MORE
        self.pages = [Pages(4 * self.rows), Pages(4 * self.rows * slab_width), Pages(4 * self.rows)]
        self.pages[0].touch(0, 4 * self.rows)
        self.touched = min(_TOUCHED_BYTES, 4 * self.rows * slab_width)
        self.pages[1].touch(0, self.touched)
        self.pages[2].touch(0, self.touched // slab_width)


class RowCut:
    """The rows of a store as they were when ``RowStore.cut`` made it.

    The store's owner calls ``save_aside`` under the store's lock. ``packed``, ``pull`` and ``close`` may be called by
    one other thread, which holds the lock for the copy of a part of a chunk at a time.

    Attributes:
        limit: rows in the store at the cut; a later row has a higher row index and is not part of it.
    """

    def __init__(self, store: Rows, since: int, room: CutRoom | None) -> None:
        self.limit = store.rows
        self.generation = store.generation
        self._store = store
        self._since = since
        self._updates = store.timeline.updates.copy()
        # Fresh pages: memory is used only where rows are saved, so a cut costs no time whatever the table's size.
        if room is None or room.rows < self.limit:
            room = CutRoom(self.limit, store.slab_width)
        self._pages = room.pages
        self._saved_at = self._pages[0].view(np.int32, self.limit)
        self._saved = self._pages[1].view(np.float32, self.limit * store.slab_width)
        self._saved_changed = self._pages[2].view(np.int32, self.limit)
        self._used = 0
        self._touched = room.touched
        self._open = True

    def __enter__(self) -> RowCut:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def nbytes(self) -> int:
        """Bytes in use, at most."""
        return self._saved_at.nbytes + 4 * self._used * (self._store.slab_width + 1)

    def packed(
        self, rows_max: int, partitions: NDArray[np.bool_] | None = None, *, buffers: int = 1
    ) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """The rows in the order of insertion, a chunk at a time.

        A cut of what changed since another one leaves out other rows.

        Args:
            rows_max: rows of a chunk, at most; all but the last have at least half as many.
            partitions: bool by partition: whether its rows are wanted; None: all are.
            buffers: a chunk is valid until this many others were requested; then its memory is reused.

        Yields:
            The number k of rows, at least 1, and their bytes: ids int64[k], then slabs float32[k, slab_width].
        """
        width = self._store.slab_width
        ring = [Pages(rows_max * (8 + 4 * width)) for _ in range(buffers)]
        for number, row_indices in enumerate(self._row_indices(rows_max, partitions)):
            data = ring[number % buffers].view(np.uint8, row_indices.size * (8 + 4 * width))
            ids, out = data[: 8 * row_indices.size].view(np.int64), data[8 * row_indices.size :].view(np.float32)
            self._copy(row_indices, ids, out.reshape(row_indices.size, width))
            yield row_indices.size, data

    def _row_indices(self, rows_max: int, partitions: NDArray[np.bool_] | None) -> Iterator[NDArray[np.int64]]:
        """The row indices of each chunk; the array is reused for the next one."""
        store, found = self._store, np.empty(rows_max, np.int64)
        start = count = 0
        while start < self.limit:
            self._touch_ahead()
            stop = min(start + rows_max - count, self.limit)
            with store.lock:
                self._check_open()
                more = slabs.changed_rows(
                    store.changed, self._saved_changed, self._saved_at, self._since, start, stop, found[count:]
                )
                if partitions is not None:
                    row_indices = found[count : count + more]
                    wanted = row_indices[partitions[partitions_of(store.index.ids[row_indices])]]
                    more = wanted.size
                    found[count : count + more] = wanted
            start, count = stop, count + more
            if 2 * count >= rows_max or (count and start == self.limit):
                yield found[:count]
                count = 0

    def _touch_ahead(self) -> None:
        """Touch memory for the rows that will be saved while the next chunk is copied and written."""
        self._check_open()
        stop = min(4 * self._used * self._store.slab_width + _TOUCHED_BYTES, 4 * self.limit * self._store.slab_width)
        if stop > self._touched:
            self._pages[1].touch(self._touched, stop)
            self._touched = stop

    def _copy(self, row_indices: NDArray[np.int64], ids: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """Copy some rows; a push that waits gets its turn in between."""
        store = self._store
        rows = max(1, _LOCKED_BYTES // (4 * store.slab_width))
        for start in range(0, row_indices.size, rows):
            part = slice(start, start + rows)
            store.owner_idle.wait()  # A thread that released a lock takes it again before a waiting one wakes up.
            with store.lock:
                self._check_open()
                ids[part] = store.index.ids[row_indices[part]]
                self._gather(row_indices[part], store.slab_width, out[part])

    def pull(self, ids: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """``RowStore.pull`` as of the cut: ``ids`` int64[n], ``out`` float32[n, width]."""
        store = self._store
        store.check_pull(ids, out)
        with store.lock:
            self._check_open()
            row_indices = store.index.find(ids)
            if store.has_updates:
                self._gather_updated(row_indices, updates_of(self._updates, ids), out)
            else:
                self._gather(row_indices, store.table.width, out)
        store.fill_missing(ids, row_indices, self.limit, self._updates, out)

    def close(self, *, finished: bool = False) -> None:
        """Free what was saved; closing again does nothing.

        Args:
            finished: the cut's rows are safely stored elsewhere: the next ``dirty_only`` cut starts here.
        """
        with self._store.lock:
            if not self._open:
                return
            self._open = False
            self._store.cuts.remove(self)
            if finished:
                self._store.snapshotted = max(self._store.snapshotted, self.generation)
            self._saved_at = self._saved_changed = np.empty(0, np.int32)
            self._saved = np.empty(0, np.float32)
            self._used = 0
        for pages in self._pages:
            pages.free()

    def save_aside(self, row_indices: NDArray[np.int64]) -> None:
        """Save the rows at ``row_indices`` that the cut sees, before they change."""
        store = self._store
        self._used = slabs.save_aside(
            store.state,
            store.changed,
            row_indices,
            store.slab_width,
            self.limit,
            self._saved_at,
            self._saved,
            self._saved_changed,
            self._used,
        )

    def _gather_updated(self, row_indices: NDArray[np.int64], now: NDArray[np.int32], out: NDArray[np.float32]) -> None:
        """Copy weights to ``out`` float32[n, width]; the row index of a row that had expired becomes negative."""
        store = self._store
        found = np.zeros((row_indices.size, store.slab_width), np.float32)
        self._gather(row_indices, store.slab_width, found)
        up_to = np.ascontiguousarray(found[:, -1]).view(np.int32)
        if store.missed is not None:
            store.missed.make(found.reshape(-1), np.arange(row_indices.size), now)
        out[:] = found[:, : store.table.width]
        if store.table.expire_after:
            row_indices[now - up_to >= store.table.expire_after] = -1

    def _gather(self, row_indices: NDArray[np.int64], width: int, out: NDArray[np.float32]) -> None:
        store = self._store
        slabs.gather_cut(
            store.state, self._saved, self._saved_at, row_indices, self.limit, width, store.slab_width, out.reshape(-1)
        )

    def _check_open(self) -> None:
        if not self._open:
            raise InvariantError(f"table {self._store.table.name!r}: the cut is closed")
