"""Reading a job's log as it is now, and opening a run on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.errors import FencedError, TransientError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import Envelope, JobSubmitted, LogRecord


async def read_spec(log: EventLog) -> JobSpec:
    """The job's specification, from its log; waits for it.

    It is the first record, unless the log was lost and a process from before appended an event to the new one first.

    Raises:
        TransientError: the connection was closed before.
    """
    async for record in log.read(0):
        if isinstance(record.envelope.event, JobSubmitted):
            return record.envelope.event.spec
    raise TransientError("the log ended before a job was submitted")


async def present_records(log: EventLog, *, after: int = 0, until: int = 0) -> AsyncIterator[LogRecord]:
    """The log as it is now, in its own order; records that are appended while reading are left out.

    Args:
        log: the log.
        after: sequence number of the record before the first one to read.
        until: sequence number of the last one to read; 0: all.
    """
    last = await log.last_seq()
    if until:
        last = min(last, until)
    if last <= after:
        return
    async for record in log.read(after):
        yield record
        if record.seq >= last:
            return


async def record_at(log: EventLog, seq: int) -> LogRecord | None:
    """One record of the log as it is now; None if there is no record of that number."""
    if not 0 < seq <= await log.last_seq():
        return None
    return await anext(log.read(seq - 1))


async def read_present(log: EventLog) -> list[LogRecord]:
    """The whole log as it is now, in its own order."""
    return [record async for record in present_records(log)]


async def open_run(log: EventLog, opening: Envelope) -> int:
    """Append the first event of a run as the log's last record, so that another process's opening event is refused.

    Returns:
        Its sequence number.

    Raises:
        TransientError: NATS was unreachable for longer than the settings allow.
        PermanentError: the log is full or gone.
    """
    while True:
        after = await log.last_seq()
        with contextlib.suppress(FencedError):  # A process of the run before has appended its last events meanwhile.
            return await log.append_next(opening, after=after)
