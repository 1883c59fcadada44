"""The jobs whose event logs a NATS server keeps."""

from __future__ import annotations

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import Connection
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.names import JobId

_NO_JOB = JobId("none")


async def stored_jobs(url: str) -> list[JobId]:
    """The ids of all jobs with an event log, sorted.

    Args:
        url: as of ``connect``. Nothing is created there.

    Raises:
        UserError, TransientError: as ``connect``.
    """
    connection = await Connection.open(url, _NO_JOB, BusSettings())
    try:
        names: list[str] = []
        while True:
            page = await connection.api("STREAM.NAMES", {"offset": len(names)})
            names += page["streams"] or ()
            if not page["streams"] or len(names) >= page["total"]:
                break
    finally:
        await connection.close()
    return sorted(job for name in names if (job := subjects.job_of_events_stream(name)))
