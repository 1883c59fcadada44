"""The event log on a JetStream stream."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import MESSAGE_NOT_FOUND, Connection, RefusedError
from elasticdl.shared.bus.nats_bus.follow import MESSAGE_ID, StoredMessage, follow
from elasticdl.shared.bus.retries import append_once
from elasticdl.shared.bus.stored_events import StoredEvent, from_stored, to_stored
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.names import PodName


class NatsEventLog:
    """See ``ports.EventLog``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stream = subjects.events_stream(connection.job)

    async def append(self, envelope: Envelope) -> int:
        """Append an event; repeated until it is acknowledged, deduplicated by the envelope's id."""
        return await self._store(to_stored(envelope), self._subject(envelope), {})

    async def append_next(self, envelope: Envelope, *, after: int) -> int:
        """Append an event right after a record."""
        stored, expected = to_stored(envelope), {"Nats-Expected-Last-Sequence": str(after)}
        return await append_once(
            envelope,
            lambda: self._store(stored, self._subject(envelope), expected),
            lambda: self._record({"seq": after + 1}),
            lambda _: f"the log does not end at {after} any more",
        )

    async def append_fenced(self, envelope: Envelope, *, after: int) -> int:
        """Append a record of the master unless another master has appended one."""
        subject = subjects.decision(self._connection.job)
        stored, expected = to_stored(envelope), {"Nats-Expected-Last-Subject-Sequence": str(after)}
        return await append_once(
            envelope,
            lambda: self._store(stored, subject, expected),
            self.last_fenced,
            lambda there: f"another master has appended record {there.seq if there else 0}, after {after}",
        )

    async def read(self, after: int) -> AsyncIterator[LogRecord]:
        """Records above ``after``, then new ones as they arrive."""
        async for message in follow(self._connection, self._stream, after, dense=True):
            yield _record_of(message)

    async def last_seq(self) -> int:
        """Number of the last record."""
        return int((await self._connection.api(f"STREAM.INFO.{self._stream}", {}))["state"]["last_seq"])

    async def last_fenced(self) -> LogRecord | None:
        """The last record of any master."""
        return await self._record({"last_by_subj": subjects.decision(self._connection.job)})

    async def _record(self, request: Mapping[str, object]) -> LogRecord | None:
        try:
            message = (await self._connection.api(f"STREAM.MSG.GET.{self._stream}", request))["message"]
        except RefusedError as error:
            if error.error_code == MESSAGE_NOT_FOUND:
                return None
            raise
        return _record_of(
            StoredMessage(
                seq=message["seq"],
                subject=message["subject"],
                message_id=_message_id(base64.b64decode(message.get("hdrs", ""))),
                data=base64.b64decode(message.get("data", "")),
            )
        )

    def _subject(self, envelope: Envelope) -> str:
        return subjects.event(self._connection.job, envelope.service, envelope.name)

    async def _store(self, stored: StoredEvent, subject: str, expected: Mapping[str, str]) -> int:
        return await self._connection.store(self._stream, subject, stored.data, {MESSAGE_ID: stored.id, **expected})


def _record_of(message: StoredMessage) -> LogRecord:
    sender = PodName(message.subject.rpartition(".")[2])
    return LogRecord(seq=message.seq, envelope=from_stored(StoredEvent(sender, message.message_id, message.data)))


def _message_id(headers: bytes) -> str:
    """From the headers of a stored message, as JetStream's API returns them."""
    lines = headers.decode().split("\r\n")
    return next((line.split(": ", 1)[1] for line in lines if line.startswith(f"{MESSAGE_ID}: ")), "")
