"""Reading a job's log as it is now, and opening a run on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from elasticdl.shared.bus.ports import Delivery, EncodedLog, EventLog, LogReader
from elasticdl.shared.errors import FencedError, ProtocolError, TransientError, UnreadableError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import Envelope, JobSubmitted, LogRecord, MessageUnreadable

DeliveryT = TypeVar("DeliveryT", bound=Delivery)


async def readable(deliveries: Sequence[DeliveryT]) -> list[DeliveryT]:
    """The deliveries whose tasks can be read. The others are removed from the queue: the ledgers say what is left."""
    found = []
    for delivery in deliveries:
        try:
            _ = delivery.task
        except ProtocolError as error:
            await delivery.put_aside(str(error))
        else:
            found.append(delivery)
    return found


async def read_spec(log: LogReader) -> JobSpec:
    """The job's specification, from its log; waits for it.

    It is the first record, unless the log was lost and a process from before appended an event to the new one first.

    Raises:
        UnreadableError: a record can't be read, and the log has no specification.
        FormatError: the log is of a newer version.
    """
    last, unreadable = await log.last_seq(), None
    async for record in log.read(0):
        match record.envelope.event:
            case JobSubmitted() as event:
                event.check_format()
                return event.spec
            case MessageUnreadable() as message:
                unreadable = unreadable or message
            case _:
                pass
        if unreadable and record.seq >= last:
            raise UnreadableError(
                f"record {unreadable.seq} of the event log, which says what the job is,", unreadable.reason
            )
    raise TransientError("the log ended before a job was submitted")


async def present_records(
    log: LogReader, *, after: int = 0, until: int = 0, decode: Decode = codec.decode_envelope
) -> AsyncIterator[LogRecord]:
    """The log as it is now, in its own order; records that are appended while reading are left out.

    Args:
        until: sequence number of the last one to read; 0: all.
        decode: see ``LogReader.read``.
    """
    last = await log.last_seq()
    if until:
        last = min(last, until)
    if last <= after:
        return
    async for record in log.read(after, decode, last):
        yield record


async def encoded_records(log: LogReader, after: int, until: int) -> AsyncIterator[Sequence[bytes]]:
    """A part of the log as ``EncodedLog.encoded`` gives it, whatever log it is."""
    if isinstance(log, EncodedLog):
        async for some in log.encoded(after, until):
            yield some
        return
    async for record in present_records(log, after=after, until=until):
        yield (codec.encode_envelope(record.envelope),)


async def submitted(log: LogReader, until: int) -> JobSpec | None:
    """The job as it was submitted, usually in the first record; ``until``: the last record to read, 0: all."""
    for after, last in ((0, 1), (1, until)):  # One record is read with one request.
        async for record in present_records(log, after=after, until=last):
            if isinstance(record.envelope.event, JobSubmitted):
                return record.envelope.event.spec
    return None


async def record_at(log: LogReader, seq: int) -> LogRecord | None:
    """One record of the log as it is now; None if there is no record of that number."""
    if not 0 < seq <= await log.last_seq():
        return None
    return await anext(log.read(seq - 1, until=seq))


async def read_present(log: LogReader) -> list[LogRecord]:
    """The whole log as it is now, in its own order."""
    return [record async for record in present_records(log)]


async def open_run(log: EventLog, opening: Envelope) -> int:
    """Append the first event of a run as the log's last record, so that another process's opening event is refused.

    Raises:
        TransientError: this is ``JobSubmitted``, and that of a process that was killed has arrived since the log was
            read: the master would obey that one.
    """
    while True:
        after = await log.last_seq()
        if isinstance(opening.event, JobSubmitted) and after and await submitted(log, after):
            raise TransientError("another command has submitted this job at the same time; resume it")
        with contextlib.suppress(FencedError):  # A process of the run before has appended its last events meanwhile.
            return await log.append_next(opening, after=after)
