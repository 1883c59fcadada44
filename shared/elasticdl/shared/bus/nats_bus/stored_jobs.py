"""The jobs whose event logs a NATS server keeps, seen from outside of any job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import Connection, RefusedError
from elasticdl.shared.bus.nats_bus.streams import remove_streams
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.names import JobId

_NO_JOB = JobId("none")
_LOOKS, _LOOK_PAUSE_S = 20, 0.1
"""How often, and with which pauses in seconds, one looks for readers of a log that leaves consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """The event log of a job.

    Attributes:
        last_s: time of its last record, or of its creation if it has none, in seconds since the epoch.
        is_followed: whether a process waits for its next record: the job's master does, and commands that show the job.
    """

    job: JobId
    last_s: float
    size_bytes: int
    is_followed: bool


async def stored_jobs(url: str) -> list[JobId]:
    """The ids of all jobs with an event log, sorted."""
    async with _connection(url) as connection:
        return await _jobs(connection)


async def stored_logs(url: str) -> list[StoredLog]:
    """All event logs, sorted by job; arguments and errors as of ``stored_jobs``."""
    found = []
    async with _connection(url) as connection:
        for job in await _jobs(connection):
            with suppress(RefusedError):  # It was removed just now.
                found.append(await _log(connection, job))
    return found


async def remove_job(url: str, job: JobId) -> None:
    """Remove all streams of a job; see ``remove_streams``."""
    async with _connection(url) as connection:
        await remove_streams(connection, job)


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[Connection]:
    connection = await Connection.open(url, _NO_JOB, BusSettings())
    try:
        yield connection
    finally:
        await connection.close()


async def _jobs(connection: Connection) -> list[JobId]:
    names: list[str] = []
    while True:
        page = await connection.api("STREAM.NAMES", {"offset": len(names)})
        names += page["streams"] or ()
        if not page["streams"] or len(names) >= page["total"]:
            break
    return sorted(job for name in names if (job := subjects.job_of_events_stream(name)))


async def _log(connection: Connection, job: JobId) -> StoredLog:
    stream = subjects.events_stream(job)
    info = await connection.api(f"STREAM.INFO.{stream}", {})
    state = info["state"]
    return StoredLog(
        job=job,
        last_s=datetime.fromisoformat(state["last_ts"] if state["messages"] else info["created"]).timestamp(),
        size_bytes=state["bytes"],
        is_followed=await _is_followed(connection, stream),
    )


async def _is_followed(connection: Connection, stream: str) -> bool:
    """Whether a reader waits for the next message, or gets messages.

    A reader that has gone leaves its consumer for a minute, but no request. A busy one has none between two
    bursts.
    """
    before: Mapping[str, int] = {}
    for _ in range(_LOOKS):
        readers = (await connection.api(f"CONSUMER.LIST.{stream}", {"offset": 0}))["consumers"] or ()
        if not readers:
            return False
        delivered = {reader["name"]: reader["delivered"]["consumer_seq"] for reader in readers}
        if any(reader.get("num_waiting", 0) for reader in readers) or (before and delivered != before):
            return True
        before = delivered
        await asyncio.sleep(_LOOK_PAUSE_S)
    return False
