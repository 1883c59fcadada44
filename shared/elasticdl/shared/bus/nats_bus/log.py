"""The event log on a JetStream stream."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import MESSAGE_NOT_FOUND, Connection, RefusedError
from elasticdl.shared.bus.nats_bus.follow import StoredMessage, follow, headers_of
from elasticdl.shared.bus.nats_bus.long_reads import MESSAGES_MIN, LongReadError, read_long
from elasticdl.shared.bus.nats_bus.publications import Publication
from elasticdl.shared.bus.retries import append_once
from elasticdl.shared.bus.stored_events import LastEncoded, Payloads, StoredEvent, whole_record
from elasticdl.shared.errors import TransientError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.names import MASTER, PodName
from elasticdl.shared.process.logs import get_logger

_log = get_logger()
_ID = "Nats-Msg-Id"
"""The header by which JetStream recognises repetitions."""
_PAYLOAD = "Elasticdl-Payload"
"""The header that names the payload of a large event."""
_SUBJECT_CHARS_MAX = 127
"""Of subjects that can only have short names, see ``codec.sender_of``."""


class NatsEventLog:
    """See ``ports.EventLog``."""

    def __init__(self, connection: Connection, payloads: Payloads) -> None:
        self._connection = connection
        self._payloads = payloads
        self._stream = subjects.events_stream(connection.job)
        self._decode_service = codec.envelope_decoder({Envelope: ("service",)})

    async def append(self, envelope: Envelope) -> int:
        """Append an event; repeated until it is acknowledged, deduplicated by the envelope's id."""
        return await self._store(await self._payloads.store(envelope), self._subject(envelope), {})

    async def append_all(self, envelopes: Sequence[Envelope]) -> None:
        """Append events, and again those that are not acknowledged."""
        publications = [
            Publication(subject=self._subject(each), payload=stored.data, headers=_headers_of(stored))
            for each in envelopes
            for stored in [await self._payloads.store(each)]
        ]
        await self._connection.store_all(self._stream, publications)

    async def append_next(self, envelope: Envelope, *, after: int) -> int:
        """Append an event right after a record."""
        stored = await self._payloads.store(envelope)
        expected = {"Nats-Expected-Last-Sequence": str(after)}
        return await append_once(
            envelope,
            lambda: self._store(stored, self._subject(envelope), expected),
            lambda: self._record({"seq": after + 1}),
            lambda _: f"the log does not end at {after} any more",
        )

    async def append_fenced(self, envelope: Envelope, *, after: int) -> int:
        """Append a record of the master unless another master has appended one."""
        subject = subjects.decision(self._connection.job)
        stored = await self._payloads.store(envelope)
        expected = {"Nats-Expected-Last-Subject-Sequence": str(after)}
        return await append_once(
            envelope,
            lambda: self._store(stored, subject, expected),
            self.last_fenced,
            lambda there: f"another master has appended record {there.seq if there else 0}, after {after}",
        )

    async def read(
        self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
    ) -> AsyncIterator[LogRecord]:
        """Records above ``after``, then new ones as they arrive."""
        if until and until <= after:
            return
        if until == after + 1 and (one := await self._record({"seq": until})):
            yield one
            return
        if until - after < MESSAGES_MIN:
            async for message in follow(self._connection, self._stream, after, dense=True):
                yield await self._record_of(message, decode)
                if message.seq == until:
                    return
            return
        async for some in self.encoded(after, until):
            for data in some:
                after += 1
                yield whole_record(after, data, decode)

    async def encoded(self, after: int, until: int) -> AsyncIterator[Sequence[bytes]]:
        """The envelopes of the records above ``after`` until a present one, as they are encoded, some at a time."""
        if until - after >= MESSAGES_MIN:
            try:
                async for events in read_long(self._connection, after, until):
                    some = [each if isinstance(each, bytes) else await self._whole(each) for each in events]
                    after += len(some)
                    yield some
            except (LongReadError, TransientError, RefusedError) as error:
                _log.debug("reading the rest of the log message by message", after=after, reason=str(error))
        if after < until:
            async for message in follow(self._connection, self._stream, after, dense=True):
                yield (await self._whole(message),)
                if message.seq >= until:
                    return

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
        return await self._record_of(
            StoredMessage(
                seq=message["seq"],
                subject=message["subject"],
                headers=headers_of(base64.b64decode(message.get("hdrs", ""))),
                data=base64.b64decode(message.get("data", "")),
            )
        )

    async def _whole(self, message: StoredMessage) -> bytes:
        """The encoded envelope of a record."""
        # Who sent a damaged event has to be found in its bytes, which is possible if the name is short.
        is_short = len(message.subject) <= _SUBJECT_CHARS_MAX
        last = LastEncoded(self._decode_service if is_short else codec.decode_envelope)
        return last.encode((await self._record_of(message, last.decode)).envelope)

    def _subject(self, envelope: Envelope) -> str:
        return subjects.event(self._connection.job, envelope.service, envelope.name)

    async def _store(self, stored: StoredEvent, subject: str, expected: Mapping[str, str]) -> int:
        return await self._connection.store(self._stream, subject, stored.data, {**_headers_of(stored), **expected})

    async def _record_of(self, message: StoredMessage, decode: Decode = codec.decode_envelope) -> LogRecord:
        subject, headers = message.subject, message.headers
        sender = PodName(subject.rpartition(".")[2])
        if sender == MASTER and subject != subjects.decision(self._connection.job):
            sender = PodName(".".join(subject.split(".")[-2:]))  # No master's: those append to one subject.
        stored = StoredEvent(sender, headers.get(_ID, ""), message.data, headers.get(_PAYLOAD, ""))
        return await self._payloads.record(message.seq, stored, decode)


def _headers_of(stored: StoredEvent) -> dict[str, str]:
    return {_ID: stored.id, _PAYLOAD: stored.payload} if stored.payload else {_ID: stored.id}
