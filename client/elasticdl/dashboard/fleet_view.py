"""A fleet on the dashboard: the log of its controller is read, and followed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from elasticdl.dashboard.sources import FleetSource
from elasticdl.shared.errors import ElasticDLError

POLL_S = 1.0
"""Seconds between two looks at the log."""


class FleetView:
    """Follows a fleet's log as long as the dashboard runs.

    Attributes:
        problem: why it can't be read, or empty.
    """

    is_complete = True

    def __init__(self, source: FleetSource) -> None:
        self.source = source
        self.problem = ""
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow the log, once."""
        if self._following is None:
            self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def changed(self, timeout_s: float) -> None:
        """Return when something has changed, or after a time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)

    def facts(self) -> dict[str, Any]:
        """What a page's stream tells, as of a job."""
        times = self.source.times
        return {
            "job": self.source.name,
            "read": len(times),
            "total": len(times),
            "live": True,
            "problem": self.problem,
            "first_s": times[0] if times else 0.0,
            "last_s": times[-1] if times else 0.0,
        }

    async def _follow(self) -> None:
        while True:
            problem = ""
            try:
                is_new = await asyncio.to_thread(self.source.read)
            except ElasticDLError as error:
                problem, is_new = str(error), False
            if is_new or problem != self.problem:
                self.problem = problem
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(POLL_S)
