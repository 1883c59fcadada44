"""What services read from a job's log besides following it."""

from __future__ import annotations

from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.errors import TransientError
from elasticdl.shared.events import JobSubmitted, LogRecord
from elasticdl.shared.job import JobSpec


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


async def read_present(log: EventLog) -> list[LogRecord]:
    """The log as it is now, in its own order; records that are appended meanwhile are left out."""
    last = await log.last_seq()
    records: list[LogRecord] = []
    if last:
        async for record in log.read(0):
            records.append(record)
            if record.seq >= last:
                break
    return records
