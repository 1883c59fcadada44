"""The cadence of core snapshots: one for every N log records, so that a successor need not fold the whole log.

It replaces the latest one. The first one of each long stretch of the log is kept as well, for readers of what is before
the latest one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from elasticdl.master.core import State
from elasticdl.shared.bus.ports import LargeValues
from elasticdl.shared.errors import FencedError, PermanentError, TransientError
from elasticdl.shared.names import MASTER
from elasticdl.shared.process.logs import get_logger
from elasticdl.views import core_snapshot
from elasticdl.views.reading import Reading

_log = get_logger()


class CoreSnapshotWriter:
    """Keeps the latest core snapshot of the master up to date, and former ones along the log.

    A failure only makes the next start slower, so no error here ends the master. A master that was fenced may still
    write: its state is a prefix of the log, and an older snapshot never replaces the latest one.

    Args:
        every: log records between two snapshots; 0: no snapshots.
    """

    def __init__(self, register: LargeValues, every: int, recovered: Reading) -> None:
        self._register = register
        self._every = every
        self._entry_seq = recovered.entry_seq
        self._last_seq = recovered.snapshot_seq
        self._stretch = core_snapshot.stretch_of(self._last_seq)
        """The last one of which a snapshot was kept, if it was small enough."""
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
        if (stretch := core_snapshot.stretch_of(core_snapshot.seq_of(data))) > self._stretch:
            if core_snapshot.is_kept(stretch, len(data)):
                await self._keep(core_snapshot.kept_name(stretch), data)
            self._stretch = stretch

    async def _keep(self, name: str, data: bytes) -> None:
        """Replace what is kept there: it may be of another version of the program, or of a lost end of the log."""
        present = await self._register.read(name)
        with suppress(FencedError):  # Another master has just kept its own.
            await self._register.write(name, data, after=present.seq if present else 0)
