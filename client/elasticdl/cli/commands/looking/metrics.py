"""``elasticdl metrics``: a job's metrics for Prometheus, from its log and the heartbeats of its processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import cast

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs.handle import POLL_S, ReadableJob, read_bus, unless_ended, until_ended, until_first_ends
from elasticdl.master.core import State
from elasticdl.shared.bus.ports import Bus, JobReader
from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.monitoring.metrics_server import serving_metrics
from elasticdl.shared.names import PodName
from elasticdl.shared.process.clock import SystemClock
from elasticdl.views.job_monitor import heartbeats_of_job
from elasticdl.views.outputs.prometheus import JobMetrics
from elasticdl.views.reading import Reading, following

HEARTBEAT_S_MAX = 10.0
"""Seconds after which the last heartbeat of a process is not shown any more."""
ENDED_POLL_S = 5.0
"""Seconds between two looks whether the job has ended: about as often as metrics are scraped."""
RETRY_S_MAX = 10.0
"""Seconds without a readable log after which ``follow`` gives up."""


class Exporter:
    """The metrics of a job as far as its log is read.

    Args:
        job: a running job is followed. The log of one that has ended is read once.
    """

    def __init__(self, job: ReadableJob) -> None:
        self._job = job
        self._counted = JobMetrics()
        self._state = State()
        self._heartbeats: dict[PodName, Heartbeat] = {}

    def text(self) -> str:
        """The present metrics."""
        now_s = time.time()
        fresh = [each for each in self._heartbeats.values() if each.time_s > now_s - HEARTBEAT_S_MAX]
        return self._counted.text(self._job.job, self._state, fresh)

    async def read(self, bus: JobReader) -> None:
        """Read what the log holds now."""
        last = await bus.log.last_seq()
        if last <= self._counted.events:
            return
        async for record in self._records(bus):
            if record.seq >= last:
                return

    async def follow(self) -> None:
        """Read what the log gets, and the heartbeats, until nothing runs the job any more; then its last events.

        Raises:
            TransientError, UserError: the log could not be read for ``RETRY_S_MAX``.
        """
        give_up_s = 0.0
        while True:
            try:
                async with self._job.open() as bus:
                    await unless_ended(self._job, partial(self.read, bus))
                    give_up_s = 0.0
                    if not self._job.condition().is_running:
                        return
                    await self._follow_running(bus)
            except (TransientError, UserError):  # A job's NATS server ends with it, and starts again for its readers.
                give_up_s = give_up_s or time.monotonic() + RETRY_S_MAX
                if time.monotonic() >= give_up_s:
                    raise
            self._heartbeats.clear()
            await asyncio.sleep(POLL_S)

    async def _follow_running(self, bus: JobReader) -> None:
        """Until the job has ended, or its log can't be read any more: then the error is raised."""
        ending = until_ended(self._job, poll_s=ENDED_POLL_S)
        await until_first_ends(self._follow(bus), self._listen(bus), ending)

    async def _records(self, bus: JobReader) -> AsyncIterator[LogRecord]:
        """The further records, once each is counted."""
        async for record in following(bus.log, Reading(state=self._state, read_seq=self._counted.events)):
            self._counted.take(record)
            yield record

    async def _follow(self, bus: JobReader) -> None:
        async for _ in self._records(bus):
            pass

    async def _listen(self, bus: JobReader) -> None:
        if not hasattr(bus, "signals"):
            await asyncio.Event().wait()
        signals = cast(Bus, bus).signals
        async for heartbeat in heartbeats_of_job(signals, SystemClock(), lambda: self._state):
            self._heartbeats[heartbeat.name] = heartbeat


def metrics(job: ReadableJob, host: str, port: int) -> None:
    """Print the metrics once, or serve them until Ctrl-C; ``port``: 0: print."""
    exporter = Exporter(job)
    if not port:
        read_bus(job, exporter.read)
        plain_console().file.write(exporter.text())
        return

    async def serve() -> None:
        async with serving_metrics(exporter.text, port, host) as bound:
            if not bound:
                raise UserError(f"no port from {port} on is free at {host}", hint="Choose another one with --port.")
            plain_console().print(f"The metrics of {job.job} are at http://{host}:{bound}/metrics")
            await exporter.follow()
            await asyncio.Event().wait()

    asyncio.run(serve())
