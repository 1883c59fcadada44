"""The pull thread: fetches the model's part for the next batch while the main thread computes the present one.

On the wire the order is always: pull 0, pull 1, push 0, pull 2, push 1, pull 3... Pull k + 1 is sent after the answer
to push k - 1 and before push k, across tasks too, whatever the threads' timing. So a seeded run of one worker computes
the same bits each time, and pulls and pushes never overlap.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field

from elasticdl.worker.input.batch_loader import Dry, Errand, Fatal, Item, Prepared
from elasticdl.worker.ports import TableRows
from elasticdl.worker.ps_client import Pulled
from elasticdl.worker.training.context import WorkContext

_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A batch with the part of the model that it needs; ``model`` is None for a batch without records."""

    prepared: Prepared
    model: Pulled | None
    pull_s: float

    def rows(self) -> TableRows:
        """Rows by table; empty without a model."""
        if self.model is None:
            return {}
        pulled = self.model.rows
        return {table: (pulled[table], ids.inverse) for table, ids in self.prepared.tables.items()}

    def release(self) -> None:
        """Give the receive buffers back, after the step."""
        if self.model is not None:
            self.model.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What came of one turn.

    Attributes:
        batch: the next batch, or None: the queue is dry, or only errands came.
        errands: what came before it.
    """

    batch: Loaded | None = None
    errands: tuple[Errand, ...] = field(default=())


class Puller:
    """Takes turns with the main thread: ``start`` gives the wire to this thread, ``arrive`` takes it back.

    Args:
        context: what the threads share.
        items: the reader thread's.
    """

    def __init__(self, context: WorkContext, items: queue.Queue[Item]) -> None:
        self._items = items
        self._held = context.held
        self._ps = context.ps
        self._stop = context.stop
        self._turns: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self._arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="pull", daemon=True).start()

    def start(self, *, idle: bool) -> None:
        """Begin to fetch the next batch.

        Args:
            idle: the main thread has no batch in hand, so errands need not wait for the next batch's pull.
        """
        self._turns.put(idle)

    def arrive(self) -> Arrival:
        """Wait for the turn's end."""
        return self._arrivals.get()

    def close(self) -> None:
        """End the thread; no turn may be under way."""
        self._turns.put(None)

    def _run(self) -> None:
        while (idle := self._turns.get()) is not None:
            errands: list[Errand] = []
            try:
                batch = self._turn(idle, errands)
            except BaseException as error:  # The main thread decides what to do about it.
                batch = None
                errands.append(Fatal(error=error))
            self._arrivals.put(Arrival(batch=batch, errands=tuple(errands)))

    def _turn(self, idle: bool, errands: list[Errand]) -> Loaded | None:
        while not self._stop.is_asked():
            try:
                item = self._items.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if isinstance(item, Prepared):
                if self._held.is_valid(item.ticket):
                    return self._load(item)
            elif isinstance(item, Dry):
                if not idle or errands:
                    return None
            else:
                errands.append(item)
                if idle or isinstance(item, Fatal):
                    return None
        return None

    def _load(self, prepared: Prepared) -> Loaded:
        if prepared.batch is None:
            return Loaded(prepared=prepared, model=None, pull_s=0.0)
        started_s = time.perf_counter()
        model = self._ps.pull({table: ids.unique for table, ids in prepared.tables.items()})
        return Loaded(prepared=prepared, model=model, pull_s=time.perf_counter() - started_s)
