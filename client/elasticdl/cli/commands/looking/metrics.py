"""``elasticdl metrics``: a job's metrics for Prometheus, from its log and the heartbeats of its processes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import cast

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs.handle import ReadableJob, read_bus, until_ended
from elasticdl.shared.bus.ports import Bus, JobReader
from elasticdl.shared.errors import UserError
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.monitoring.metrics_server import serving_metrics
from elasticdl.shared.names import PodName
from elasticdl.shared.process.clock import SystemClock
from elasticdl.views.job_monitor import heartbeats_of_job
from elasticdl.views.outputs.prometheus import JobMetrics
from elasticdl.views.reading import Reading, following

HEARTBEAT_S_MAX = 10.0
"""Seconds after which the last heartbeat of a process is not shown any more."""


class Exporter:
    """The metrics of a job as far as its log is read.

    Args:
        job: a running job is followed. The log of one that has ended is read once.
    """

    def __init__(self, job: ReadableJob) -> None:
        self._job = job
        self._counted = JobMetrics()
        self._past = Reading()
        self._heartbeats: dict[PodName, Heartbeat] = {}

    def text(self) -> str:
        """The present metrics."""
        now_s = time.time()
        fresh = [each for each in self._heartbeats.values() if each.time_s > now_s - HEARTBEAT_S_MAX]
        return self._counted.text(self._job.job, self._past.state, fresh)

    async def read(self, bus: JobReader) -> None:
        """Read what the log holds now."""
        last = await bus.log.last_seq()
        if last <= self._past.state.seq:
            return
        async for record in following(bus.log, self._past):
            self._counted.take(record)
            if record.seq >= last:
                return

    async def follow(self) -> None:
        """Read what the log gets, and the heartbeats, until nothing runs the job any more; then its last events."""
        async with self._job.open() as bus:
            await self.read(bus)
            if not self._job.condition().is_running:
                return
            following_it = [asyncio.create_task(self._follow(bus)), asyncio.create_task(self._listen(bus))]
            ended = asyncio.create_task(until_ended(self._job))
            await asyncio.wait((*following_it, ended), return_when=asyncio.FIRST_COMPLETED)
            for task in (*following_it, ended):
                task.cancel()
            await asyncio.gather(*following_it, ended, return_exceptions=True)
        self._heartbeats.clear()

    async def _follow(self, bus: JobReader) -> None:
        async for record in following(bus.log, replace(self._past, read_seq=self._counted.events)):
            self._counted.take(record)

    async def _listen(self, bus: JobReader) -> None:
        if not hasattr(bus, "signals"):
            await asyncio.Event().wait()
        signals = cast(Bus, bus).signals
        async for heartbeat in heartbeats_of_job(signals, SystemClock(), lambda: self._past.state):
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
                raise UserError(f"no port from {port} on is free at {host}")
            plain_console().print(f"The metrics of {job.job} are at http://{host}:{bound}/metrics")
            await exporter.follow()
            await asyncio.Event().wait()

    asyncio.run(serve())
