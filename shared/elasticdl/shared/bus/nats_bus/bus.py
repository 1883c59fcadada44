"""One client of a NATS server."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.large_values import SplitValues
from elasticdl.shared.bus.nats_bus.connection import (
    MESSAGE_NOT_DELETED,
    MESSAGE_NOT_FOUND,
    SEQUENCE_NOT_FOUND,
    Connection,
    RefusedError,
    WrongSequenceError,
)
from elasticdl.shared.bus.nats_bus.follow import follow
from elasticdl.shared.bus.nats_bus.log import NatsEventLog
from elasticdl.shared.bus.nats_bus.signals import NatsSignals
from elasticdl.shared.bus.nats_bus.streams import create_streams, remove_streams
from elasticdl.shared.bus.nats_bus.tasks import NatsTaskQueue
from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.bus.stored_events import Payloads
from elasticdl.shared.errors import FencedError
from elasticdl.shared.names import JobId


class NatsBus:
    """See ``ports.Bus``; created by ``connect``. As a context manager, it closes at the end of the block."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        job = connection.job
        payloads = NatsKeyValue(connection, subjects.payloads_stream(job), subjects.payload, subjects.payload_name)
        self.log = NatsEventLog(connection, Payloads(payloads))
        self.tasks = NatsTaskQueue(connection)
        self.registers = NatsKeyValue(connection, subjects.model_stream(job), subjects.register, subjects.register_name)
        snapshots = NatsKeyValue(connection, subjects.core_stream(job), subjects.core, subjects.core_name)
        self.core_snapshots = SplitValues(snapshots, connection.settings.part_bytes_max)
        self.stored_states = NatsStoredStates(connection)
        self.signals = NatsSignals(connection)

    async def __aenter__(self) -> NatsBus:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def rebuild(self) -> None:
        """Remove the streams of the job and create empty ones."""
        await remove_streams(self._connection, self._connection.job)
        await create_streams(self._connection)

    async def close(self) -> None:
        """Close the connection; iterators end."""
        await self._connection.close()


async def connect(url: str, job: JobId, settings: BusSettings | None = None) -> NatsBus:
    """Connect and create the job's streams if needed; a lost connection is reestablished without limit.

    Args:
        url: ``nats://[user:password@]host:port``, several with commas between.

    Raises:
        UserError: no NATS server answers there, or one without JetStream.
        TransientError: no NATS server answers, and by the settings that is temporary.
        PermanentError: the server refuses to create the streams.
    """
    connection = await Connection.open(url, job, settings or BusSettings())
    try:
        await create_streams(connection)
    except BaseException:
        await connection.close()
        raise
    return NatsBus(connection)


async def check_server(url: str, job: JobId) -> int:
    """Check that a server with JetStream answers, creating nothing; returns the largest message (bytes) it accepts."""
    connection = await Connection.open(url, job, BusSettings())
    accepted = connection.client.max_payload
    await connection.close()
    return accepted


REMOVED_AT_ONCE_MAX = 64
"""Requests to remove a message that wait for their answers at the same time."""


class NatsStoredStates:
    """See ``ports.StoredStates``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stream = subjects.states_stream(connection.job)

    async def append(self, group: str, part: bytes) -> int:
        """Store a part; a repetition after a lost acknowledgement stores nothing."""
        subject = subjects.states(self._connection.job, group)
        return await self._connection.store(self._stream, subject, part, {"Nats-Msg-Id": secrets.token_hex(12)})

    async def read(self, number: int) -> bytes | None:
        """A part."""
        try:
            answer = await self._connection.api(f"STREAM.MSG.GET.{self._stream}", {"seq": number})
        except RefusedError as error:
            if error.error_code == MESSAGE_NOT_FOUND:
                return None
            raise
        return base64.b64decode(answer["message"].get("data", ""))

    async def remove(self, numbers: Iterable[int]) -> None:
        """Remove parts by number."""
        rest = iter(numbers)
        while some := list(islice(rest, REMOVED_AT_ONCE_MAX)):
            await asyncio.gather(*map(self._remove, some))

    async def _remove(self, number: int) -> None:
        try:
            # Without "no_erase" the server overwrites the message on its disk first.
            await self._connection.api(f"STREAM.MSG.DELETE.{self._stream}", {"seq": number, "no_erase": True})
        except RefusedError as error:
            if error.error_code not in (MESSAGE_NOT_FOUND, MESSAGE_NOT_DELETED, SEQUENCE_NOT_FOUND):
                raise

    async def remove_group(self, group: str) -> None:
        """Remove all parts of a group."""
        subject = subjects.states(self._connection.job, group)
        await self._connection.api(f"STREAM.PURGE.{self._stream}", {"filter": subject})


class NatsKeyValue:
    """See ``ports.KeyValue``; ``subject_of``: (job, name) -> subject."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        subject_of: Callable[[JobId, str], str],
        name_of: Callable[[JobId, str], str],
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._subject_of = subject_of
        self._name_of = name_of

    async def read(self, name: str) -> KeyValueEntry | None:
        """The present value."""
        message = await self._last(name)
        return None if message is None else _entry(message)

    async def write(self, name: str, value: bytes, *, after: int) -> int:
        """Replace the value that the writer knows; a refused repetition of the same write is a success."""
        write_id = secrets.token_hex(12)
        headers = {"Nats-Msg-Id": write_id, "Nats-Expected-Last-Subject-Sequence": str(after)}
        subject = self._subject_of(self._connection.job, name)
        try:
            return await self._connection.store(self._stream, subject, value, headers)
        except WrongSequenceError as error:
            message = await self._last(name)
            if message is not None and write_id.encode() in base64.b64decode(message.get("hdrs", "")):
                return int(message["seq"])
            present = message["seq"] if message else 0
            raise FencedError(
                f"another process has written register {name}: it is at {present}, not at {after}"
            ) from error

    async def watch(self) -> AsyncIterator[tuple[str, KeyValueEntry]]:
        """Present values, then changes as they arrive."""
        async for message in follow(self._connection, self._stream, 0, dense=False):
            name = self._name_of(self._connection.job, message.subject)
            yield name, KeyValueEntry(value=message.data, seq=message.seq)

    async def remove_below(self, name: str, *, before: int) -> None:
        """Remove old values below a name."""
        subject = f"{self._subject_of(self._connection.job, name)}.*"
        await self._connection.api(f"STREAM.PURGE.{self._stream}", {"filter": subject, "seq": before})

    async def _last(self, name: str) -> dict[str, Any] | None:
        request = {"last_by_subj": self._subject_of(self._connection.job, name)}
        try:
            message: dict[str, Any] = (await self._connection.api(f"STREAM.MSG.GET.{self._stream}", request))["message"]
        except RefusedError as error:
            if error.error_code == MESSAGE_NOT_FOUND:
                return None
            raise
        return message


def _entry(message: dict[str, Any]) -> KeyValueEntry:
    return KeyValueEntry(value=base64.b64decode(message.get("data", "")), seq=message["seq"])
