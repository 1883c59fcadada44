"""Registers on a JetStream stream that keeps one message per subject."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

from elasticdl.shared.bus.nats_bus.connection import MESSAGE_NOT_FOUND, Connection, RefusedError, WrongSequenceError
from elasticdl.shared.bus.nats_bus.follow import follow
from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.errors import FencedError
from elasticdl.shared.names import JobId


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
