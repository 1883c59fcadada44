"""One job on the dashboard: its log is read once, and followed while the job runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

from elasticdl.dashboard.sources import JobSource
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.messages.events import LogRecord
from elasticdl.views.replaying import Replay

AT_ONCE = 200
"""Records that are folded before other requests are served."""
FROZEN_AT_ONCE = 50_000
"""Records after which they are kept from collections of garbage, which would hold up answers for longer and longer."""
POLL_S = 5.0
"""Seconds between two checks whether a job still runs."""


class JobView:
    """Reads a job's log; ``replay`` holds what is read so far.

    Attributes:
        total: records that the log had when reading began, and at least those that are read.
        is_live: whether the log may still grow.
        problem: why reading has ended too early, or empty.
    """

    def __init__(self, source: JobSource) -> None:
        self.source = source
        self.replay = Replay()
        self.total = 0
        self.is_live = True
        self.problem = ""
        self._arrived: list[LogRecord] = []
        """Records that are not folded yet."""
        self._has_arrived = asyncio.Event()
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read, once."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())

    async def close(self) -> None:
        """Stop reading."""
        gc.unfreeze()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    @property
    def read(self) -> int:
        """The number of the last record that is read."""
        return len(self.replay.records)

    @property
    def is_complete(self) -> bool:
        """Whether all records are read that the log had when reading began."""
        return self.total > 0 and self.read >= self.total

    def facts(self) -> dict[str, Any]:
        """What a page's stream tells: how much is read, and between which times, in seconds since 1970."""
        records = self.replay.records
        return {
            "job": self.source.job,
            "read": self.read,
            "total": self.total,
            "live": self.is_live,
            "problem": self.problem,
            "first_s": records[0].envelope.time_s if records else 0.0,
            "last_s": records[-1].envelope.time_s if records else 0.0,
        }

    async def changed(self, timeout_s: float) -> None:
        """Return when something has changed, or after a time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)

    async def _read(self) -> None:
        try:
            is_running = await asyncio.to_thread(self.source.is_running)
            async with self.source.open() as bus:
                self.total = await bus.log.last_seq()
                following = self._follow(bus.log.read(0), is_running=is_running)
                ending = self._until_ended(is_running=is_running)
                tasks = [asyncio.create_task(each) for each in (following, ending, self._fold_arrived())]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in tasks:
                        task.cancel()
                    *results, folded = await asyncio.gather(*tasks, return_exceptions=True)
            if isinstance(folded, Exception):
                raise folded
            error = next((each for each in results if isinstance(each, ElasticDLError)), None)
            if error is not None and not is_running:
                raise error
        except (ElasticDLError, OSError) as error:
            self.problem = str(error)
        finally:
            self._fold()
            self.is_live = False
            self.replay.finish()
            self._notify()

    async def _follow(self, log: AsyncIterator[LogRecord], *, is_running: bool) -> None:
        async for record in log:
            self._arrived.append(record)
            self._has_arrived.set()
            if len(self._arrived) >= AT_ONCE:
                await asyncio.sleep(0)
            if not is_running and record.seq >= self.total:
                return

    async def _fold_arrived(self) -> None:
        """Fold together what has arrived together: this task's turn comes when no more of it is there."""
        while True:
            await self._has_arrived.wait()
            self._has_arrived.clear()
            self._fold()

    def _fold(self) -> None:
        arrived, self._arrived = self._arrived, []
        before = self.read
        self.replay.extend(arrived)
        if before < self.total <= self.read or before // FROZEN_AT_ONCE < self.read // FROZEN_AT_ONCE:
            gc.freeze()
        self.total = max(self.total, self.read)
        self._notify()

    async def _until_ended(self, *, is_running: bool) -> None:
        """Return once nothing runs the job any more; never for a job that had ended, whose log is read to its end."""
        while is_running and await asyncio.to_thread(self.source.is_running):
            await asyncio.sleep(POLL_S)
        if not is_running:
            await asyncio.Event().wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
