"""Large metric states on a JetStream stream. Their numbers are the sequence numbers of its messages."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Iterable
from itertools import islice

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import (
    MESSAGE_NOT_DELETED,
    MESSAGE_NOT_FOUND,
    SEQUENCE_NOT_FOUND,
    Connection,
    RefusedError,
)

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
