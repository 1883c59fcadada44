"""The cadence of core snapshots: one per so many log records, so that a successor need not fold the whole log."""

from __future__ import annotations

import asyncio

import structlog

from elasticdl.master.core import State
from elasticdl.shared.bus.ports import LargeValues
from elasticdl.shared.errors import FencedError, PermanentError, TransientError
from elasticdl.shared.names import MASTER
from elasticdl.views import core_snapshot
from elasticdl.views.reading import Reading

_log = structlog.get_logger()


class CoreSnapshotWriter:
    """Keeps the latest core snapshot of the master up to date.

    A failure only makes the next start slower, so no error here ends the master. A master that was fenced may still
    write: its state is a prefix of the log, and an older snapshot never replaces a newer one.

    Args:
        every: log records between two snapshots; 0: no snapshots.
    """

    def __init__(self, register: LargeValues, every: int, recovered: Reading) -> None:
        self._register = register
        self._every = every
        self._entry_seq = recovered.entry_seq
        self._last_seq = recovered.snapshot_seq
        self._waiting: asyncio.Queue[core_snapshot.StateCopy] = asyncio.Queue()
        self.is_busy = False
        """Whether a snapshot is being written; the next one waits for it."""

    def offer(self, state: State) -> None:
        """Take a snapshot if one is due; ``state`` may change once this returns."""
        if self._every and state.seq >= self._last_seq + self._every and not self.is_busy:
            self.is_busy = True
            self._last_seq = state.seq
            self._waiting.put_nowait(core_snapshot.copy(state))

    async def run(self) -> None:
        """Write snapshots until cancelled."""
        while True:
            # In a thread, while the master's loop continues.
            data = await asyncio.to_thread(core_snapshot.pack, await self._waiting.get())
            try:
                await self._write(data)
            except (TransientError, PermanentError) as error:
                _log.warning("core snapshot not written", bytes=len(data), reason=str(error))
            self.is_busy = False

    async def _write(self, data: bytes) -> None:
        try:
            self._entry_seq = await self._register.write(MASTER, data, after=self._entry_seq)
        except FencedError:
            # Another master, or an earlier write whose answer was lost: the newer snapshot stays.
            present = await self._register.read(MASTER)
            self._entry_seq = present.seq if present else 0
            if present is None or core_snapshot.seq_of(present.value) < core_snapshot.seq_of(data):
                self._entry_seq = await self._register.write(MASTER, data, after=self._entry_seq)
