"""What services read from a job's log besides following it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.errors import TransientError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import JobSubmitted, LogRecord


async def read_spec(log: EventLog) -> JobSpec:
    """The job, from its log; waits for it.

    It is the first record, unless the log was lost and somebody who is left over was faster than whoever began it anew.

    Raises:
        TransientError: the connection was closed meanwhile.
    """
    async for record in log.read(0):
        if isinstance(record.envelope.event, JobSubmitted):
            return record.envelope.event.spec
    raise TransientError("the log ended before a job was submitted")


async def present_records(log: EventLog, *, after: int = 0, until: int = 0) -> AsyncIterator[LogRecord]:
    """The log as it is now, in its own order; records that are appended meanwhile are left out.

    Args:
        log: what to read.
        after: sequence number of the last record that is not wanted.
        until: sequence number of the last one that is; 0: all.
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
    """One record of the log as it is now; None where it has none of that number."""
    if not 0 < seq <= await log.last_seq():
        return None
    return await anext(log.read(seq - 1))


async def read_present(log: EventLog) -> list[LogRecord]:
    """The whole log as it is now, in its own order."""
    return [record async for record in present_records(log)]
