"""The event log on a JetStream stream."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import MESSAGE_NOT_FOUND, Connection, RefusedError
from elasticdl.shared.bus.nats_bus.follow import follow
from elasticdl.shared.bus.retries import append_once
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope, LogRecord


class NatsEventLog:
    """See ``ports.EventLog``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stream = subjects.events_stream(connection.job)

    async def append(self, envelope: Envelope) -> int:
        """Append an event; repeated until it is acknowledged, deduplicated by the envelope's id."""
        subject = subjects.event(self._connection.job, envelope.service, envelope.name)
        data = codec.encode_envelope(envelope)
        return await self._connection.store(self._stream, subject, data, {"Nats-Msg-Id": envelope.id})

    async def append_next(self, envelope: Envelope, *, after: int) -> int:
        """Append an event right after a record."""
        subject = subjects.event(self._connection.job, envelope.service, envelope.name)
        headers = {"Nats-Msg-Id": envelope.id, "Nats-Expected-Last-Sequence": str(after)}
        return await append_once(
            envelope,
            lambda: self._connection.store(self._stream, subject, codec.encode_envelope(envelope), headers),
            lambda: self._record({"seq": after + 1}),
            lambda _: f"the log does not end at {after} any more",
        )

    async def append_fenced(self, envelope: Envelope, *, after: int) -> int:
        """Append a record of the master unless another master has appended one."""
        subject = subjects.decision(self._connection.job)
        headers = {"Nats-Msg-Id": envelope.id, "Nats-Expected-Last-Subject-Sequence": str(after)}
        return await append_once(
            envelope,
            lambda: self._connection.store(self._stream, subject, codec.encode_envelope(envelope), headers),
            self.last_fenced,
            lambda there: f"another master has appended record {there.seq if there else 0}, after {after}",
        )

    async def read(self, after: int) -> AsyncIterator[LogRecord]:
        """Records above ``after``, then new ones as they arrive."""
        async for message in follow(self._connection, self._stream, after, dense=True):
            yield LogRecord(seq=message.seq, envelope=codec.decode_envelope(message.data))

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
        return LogRecord(seq=message["seq"], envelope=codec.decode_envelope(base64.b64decode(message["data"])))
