"""The event log of a job as a list."""

from __future__ import annotations

import asyncio

from elasticdl.cli.jobs.handle import JobHandle
from elasticdl.shared.bus.reading import read_present
from elasticdl.shared.messages.events import LogRecord


def read_records(job: JobHandle) -> list[LogRecord]:
    """All records that the event log of a job holds now.

    Raises:
        ElasticDLError: the log can't be reached.
    """

    async def read() -> list[LogRecord]:
        async with job.open() as bus:
            return await read_present(bus.log)

    return asyncio.run(read())
