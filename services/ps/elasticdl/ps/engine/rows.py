"""One embedding table, row by row: pull, push and copy-on-write cuts.

**Locking.** ``pull``, ``check``, ``reserve``, ``push``, ``load``, ``cut`` and the properties belong to one thread, the
owner of the store. A ``RowCut`` may be read and closed by another one. ``lock`` is held by whatever moves, saves or
reallocates rows, and by a cut for the copy of one chunk: neither ever waits for more than one push or one chunk.
``pull`` needs no lock: cuts only read.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.checks import check_array, check_finite, check_range, check_unique
from elasticdl.ps.engine.cuts import EVERYTHING, CutRoom, RowCut
from elasticdl.ps.engine.index import IdIndex
from elasticdl.ps.engine.kernels import formulas, slabs
from elasticdl.ps.engine.optimizers import Update, rule_of
from elasticdl.ps.engine.pages import Pages
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.shared.errors import InvariantError, ProtocolError
from elasticdl.shared.model.partitioning import partitions_of
from elasticdl.shared.model.rows.initial_rows import Initializer
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.rows.zero_gradients import missed_updates_of
from elasticdl.shared.model.signature import Optimizer, RowTable, VariableKind

_SAVED = 0
"""Generation of a row that was loaded from a snapshot on which the next one builds: it does not count as changed."""
_DROPPED_ROWS = 8192
"""Rows checked per step while a push waits, about a millisecond; rows of partitions that moved away are dropped."""
_SHRUNK_BYTES = 8 << 20
"""Memory returned to the system per step."""
_CUTS_MAX = 2
"""One evaluation pin and one snapshot cut."""


class _OwnerFirst:
    """The store's lock for its owner while a cut is open: the cut's thread waits until the owner has the lock."""

    __slots__ = ("_idle", "_lock")

    def __init__(self, lock: threading.Lock, idle: threading.Event) -> None:
        self._lock = lock
        self._idle = idle

    def __enter__(self) -> None:
        self._idle.clear()
        self._lock.acquire()
        self._idle.set()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class RowStore:
    """The rows of one table that this ps holds, each a slab ``[weights | slots | updates]`` of contiguous float32.

    A row exists once a push has touched it; a missing row is computed by the initializer. Rows are removed only when
    their partition has gone to another ps (``drop``). ``TrackedRowStore`` has tables where this is different.

    The last place of a slab, an int32, is the number of updates that the row is up to. It is there if the optimizer
    changes rows without a gradient: these catch up when they are read or touched, so a table learns as a dense
    embedding does, whose every row takes part in every update.

    Methods raise ``ProtocolError`` for a wrong shape or dtype, and for an id outside of the table.

    Args:
        optimizer: how a push moves rows. A FROZEN table has no slots and refuses pushes.
        timeline: the updates that are made; the model shard that owns the store changes it.
    """

    def __init__(self, table: RowTable, optimizer: Optimizer, seed: int, timeline: Timeline) -> None:
        rule = rule_of(optimizer.of_table(table))
        slots = rule.slots if table.kind is VariableKind.TRAINABLE else ()
        self.table = table
        self._name = f"table {table.name!r}"
        self.timeline = timeline
        self.missed = missed_updates_of(table, optimizer, timeline.rates)
        """What rows catch up on; None: nothing happens to a row without a gradient."""
        self.has_updates = bool(table.expire_after) or self.missed is not None
        """Whether the last place of a slab is the number of updates that the row is up to."""
        self.slab_width = table.width * (1 + len(slots)) + int(self.has_updates)
        self.lock = threading.Lock()
        self.index = IdIndex()
        self.initializer = Initializer.of(table, seed)
        self._pages = (Pages(0), Pages(0))
        self.state = np.empty(0, np.float32)
        """Flat slabs by row index; moved by ``reserve``."""
        self.changed = np.empty(0, np.int32)
        """By row index: generation in which the row last changed; it ends with each snapshot cut. Or ``_SAVED``."""
        self.generation = 1
        self.snapshotted = 0
        """Generation of the last cut that was closed as ``finished``; later changes are dirty."""
        self.cuts: list[RowCut] = []
        self.initial_factors: NDArray[np.float32] | None = None
        """By partition: what initial weights are multiplied by; None: ``missed`` says it."""
        self.owner_idle = threading.Event()
        """Not set while the owner waits for the lock beside an open cut: the cut lets it go first."""
        self.owner_idle.set()
        self._rule = rule
        fresh_slots = np.repeat(np.array([slot.initial for slot in slots], np.float32), table.width)
        self._fresh_slots = np.append(fresh_slots, np.float32(0)) if self.has_updates else fresh_slots

    @property
    def rows(self) -> int:
        """Number of stored rows."""
        return self.index.rows

    @property
    def nbytes(self) -> int:
        """Bytes allocated for rows. What open cuts have saved is not in it: it is freed when they are closed."""
        return self.index.nbytes + self.state.nbytes + self.changed.nbytes

    def pull(self, ids: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """Write the weights of ``ids`` int64[n] into ``out`` float32[n, width]; missing ones are computed."""
        self.check_pull(ids, out)
        row_indices, missing = self._look_up(ids)
        if self.missed is None:
            slabs.gather(self.state, row_indices, self.table.width, self.slab_width, out.reshape(-1))
        else:
            self.missed.gather(self.state, row_indices, self.timeline.served_updates_of(ids), out.reshape(-1))
        if missing:
            self.fill_missing(ids, row_indices, self.rows, self.timeline.updates, out)

    def fill_missing(
        self,
        ids: NDArray[np.int64],
        row_indices: NDArray[np.int64],
        limit: int,
        updates: NDArray[np.int32],
        out: NDArray[np.float32],
    ) -> None:
        """Write the values of rows without an index in ``[0, limit)`` after ``updates``, int32[256] by partition."""
        self.initializer.fill_missing(ids, row_indices, limit, out.reshape(-1))
        factors = self.initial_factors
        if factors is None and self.missed is not None and self.missed.moves_untouched:
            factors = self.missed.untouched(updates)
        if factors is not None:
            missing = (row_indices < 0) | (row_indices >= limit)
            out[missing] *= factors[partitions_of(ids[missing])][:, np.newaxis]

    def check_pull(self, ids: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """Refuse a pull that can't be answered."""
        self._check_ids(ids)
        check_array(f"{self._name}: rows", out, np.float32, (ids.size, self.table.width))

    def check(self, ids: NDArray[np.int64], gradients: NDArray[np.float32]) -> None:
        """Refuse a push that can't be applied: ``ids`` int64[n], ``gradients`` float32[n, width].

        Raises:
            ProtocolError: wrong shape or dtype, an id outside of the table or there twice, or a frozen table.
        """
        name = self._name
        if self.table.kind is not VariableKind.TRAINABLE:
            raise ProtocolError(f"{name}: gradients pushed to a {self.table.kind.value} table")
        self._check_ids(ids)
        check_array(f"{name}: gradients", gradients, np.float32, (ids.size, self.table.width))
        check_finite(f"{name}: gradients", gradients)
        check_unique(f"{name}: ids", ids)

    def reserve(self, rows: int) -> None:
        """Make room for a push of ``rows`` rows, all new or all to be saved aside, so that it needs no memory any more.

        Raises:
            MemoryError: there is no room; no row has changed.
        """
        if self.index.rows + rows > self.changed.size:
            with self._locked():
                self._reserve(rows)
        else:
            # Needs no lock: an index that grows copies itself, and an open cut reads the old one.
            self.index.reserve(rows)

    def _reserve(self, rows: int) -> None:
        self.index.reserve(rows)
        needed = self.index.rows + rows
        if needed > self.changed.size:
            self._grow(max(needed, self.changed.size * 5 // 4))

    def _grow(self, capacity: int) -> None:
        """Pages are moved, not bytes, and no moment holds both copies. Nothing else keeps views."""
        before = self.changed.size
        self.state, self.changed = np.empty(0, np.float32), np.empty(0, np.int32)
        states, changes = self._pages
        try:
            states.grow(4 * capacity * self.slab_width)
            changes.grow(4 * capacity)
        except MemoryError:
            capacity = before
            raise
        finally:
            self.state = states.view(np.float32, capacity * self.slab_width)
            self.changed = changes.view(np.int32, capacity)

    def push(self, gradients: RowGradients, update: Update) -> None:
        """Apply the optimizer to rows with gradients, as checked."""
        if not gradients.ids.size:
            return
        with self._locked():
            self._reserve(gradients.ids.size)
            self._update(self._touch(gradients.ids), gradients, update)

    def load(self, ids: NDArray[np.int64], rows: NDArray[np.float32], *, saved: bool = False) -> None:
        """Insert or replace whole slabs, ``rows`` float32[n, slab_width]; they count as changed unless they are saved.

        Args:
            ids: int64[n].
            saved: the next snapshot will build on one that has them.
        """
        name = self._name
        check_array(f"{name}: ids", ids, np.int64, (ids.size,))
        check_array(f"{name}: slabs", rows, np.float32, (ids.size, self.slab_width))
        with self._locked():
            self._reserve(ids.size)
            row_indices = self._touch(ids)
            self._slabs()[row_indices] = rows
            if saved:
                self.changed[row_indices] = _SAVED

    def load_weights(self, ids: NDArray[np.int64], weights: NDArray[np.float32]) -> None:
        """Insert or replace rows with fresh optimizer slots: ``ids`` int64[n], ``weights`` float32[n, width]."""
        rows = np.empty((ids.size, self.slab_width), np.float32)
        rows[:, : self.table.width] = weights
        rows[:, self.table.width :] = self._fresh_slots
        self.load(ids, rows)

    def take_initial_rows(self, other: RowStore, seed: int) -> None:
        """Have the missing rows of another store of the same model: weight decay or FTRL have changed them, too."""
        initializer = other.table.initializer
        if initializer.distribution == self.table.initializer.distribution:
            self.initializer = Initializer.of(replace(self.table, initializer=initializer), seed)
        self.initial_factors = other.initial_factors

    def stored_weights(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ids int64[n] and weights float32[n, width] of the rows with the indices ``[start, stop)``."""
        stop = min(stop, self.rows)
        ids = self.index.ids[start:stop]
        if self.missed is None:
            return ids, self._slabs()[start:stop, : self.table.width]
        weights = np.empty((ids.size, self.table.width), np.float32)
        self.missed.gather(self.state, np.arange(start, stop), self.timeline.updates_of(ids), weights.reshape(-1))
        return ids, weights

    def room_for_cut(self) -> CutRoom:
        """Memory for a ``cut`` that comes soon; any thread may call it, without a lock."""
        return CutRoom(self.rows, self.slab_width)

    def cut(self, *, dirty_only: bool = False, since: int = EVERYTHING, room: CutRoom | None = None) -> RowCut:
        """The rows as they are now; pushes continue. Costs no copy: a row is saved when a push first touches it.

        Args:
            dirty_only: ``RowCut.packed`` yields only rows that changed since the last cut that was closed as finished.
            since: if not ``dirty_only``, it yields only rows that changed after this generation.
            room: from ``room_for_cut``; without it, or if rows were added since, memory is made here.

        Raises:
            InvariantError: an evaluation pin and a snapshot cut are open already.
        """
        with self.lock:
            if len(self.cuts) == _CUTS_MAX:
                raise InvariantError(f"table {self.table.name!r}: more than {_CUTS_MAX} open cuts")
            cut = RowCut(self, since=self.snapshotted if dirty_only else since, room=room)
            self.cuts.append(cut)
            self.generation += 1
            return cut

    def drop(self, stop: int, wanted: NDArray[np.bool_]) -> int:
        """Remove some of the rows below row index ``stop`` that are in no wanted partition; all above are wanted.

        Rows from the end take their places, so it has to wait while a cut is open.

        Args:
            stop: how far back it has been done; at first the number of rows.

        Returns:
            The next ``stop``; 0: it is done.
        """
        with self.lock:
            if self.cuts:
                return stop
            start = max(0, stop - _DROPPED_ROWS)
            row_indices = start + np.flatnonzero(~wanted[partitions_of(self.index.ids[start:stop])])[::-1]
            self._remove(np.ascontiguousarray(row_indices))
            return start

    def shrink(self) -> bool:
        """Return some memory to the system if rows need far less; whether there was any to return."""
        piece = max(1, _SHRUNK_BYTES // (4 * self.slab_width))
        with self.lock:
            if self.changed.size <= self.rows * 5 // 4 + piece:
                return False
            self._grow(self.changed.size - piece)
            return True

    def _look_up(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Row indices int64[n], negative for missing rows, and how many of these there are."""
        return self.index.look_up(ids)

    def _update(self, row_indices: NDArray[np.int64], gradients: RowGradients, update: Update) -> None:
        """Make the missed updates and this one."""
        if self.missed is not None:
            self.missed.make(self.state, row_indices, np.full(row_indices.size, update.iteration, np.int32))
        formulas.update_rows(
            self._rule.formula,
            self.state,
            self.table.width,
            self.slab_width,
            row_indices,
            gradients.values.reshape(-1),
            gradients.magnitudes.reshape(-1),
            self._rule.coefficients(update),
        )
        if self.has_updates:
            self.slab_ends()[row_indices] = update.iteration + 1

    def slab_ends(self) -> NDArray[np.int32]:
        """int32[rows], a view: the number of updates that each row is up to."""
        return self.state[: self.rows * self.slab_width].view(np.int32)[self.slab_width - 1 :: self.slab_width]

    def _slabs(self) -> NDArray[np.float32]:
        """float32[rows, slab_width], a view."""
        return self.state[: self.rows * self.slab_width].reshape(-1, self.slab_width)

    def _remove(self, row_indices: NDArray[np.int64]) -> None:
        """Remove rows, int64[n], descending; rows from the end take their places. No cut may be open."""
        sources = self.index.remove(row_indices)
        slabs.move(self.state, self.changed, sources, row_indices, self.slab_width)

    def _locked(self) -> AbstractContextManager[object]:
        """The lock, for the owner."""
        # Only the owner opens cuts. Without one nothing competes for the lock, and the event would cost more than it.
        return _OwnerFirst(self.lock, self.owner_idle) if self.cuts else self.lock

    def _touch(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row indices of ``ids`` that are about to change: new rows are initialised, old ones saved for the cuts.

        The caller holds the lock and has reserved room.
        """
        index, before = self.index, self.index.rows
        row_indices = index.insert(ids)
        for cut in self.cuts:
            cut.save_aside(row_indices)
        if index.rows > before:
            fresh = self.state[before * self.slab_width : index.rows * self.slab_width]
            self.initializer.fill(index.ids[before:], fresh, self.slab_width)
            fresh.reshape(-1, self.slab_width)[:, self.table.width :] = self._fresh_slots
        self.changed[row_indices] = self.generation
        return row_indices

    def _check_ids(self, ids: NDArray[np.int64]) -> None:
        check_array(f"{self._name}: ids", ids, np.int64, (ids.size,))
        if self.table.input_dim:
            check_range(self._name, ids, self.table.input_dim)
