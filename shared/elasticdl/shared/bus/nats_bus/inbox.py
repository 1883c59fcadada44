"""Where the messages of a subscription arrive."""

from __future__ import annotations

import asyncio
from collections import deque

from nats.aio.msg import Msg

from elasticdl.shared.bus.nats_bus.connection import Connection


class Inbox:
    """Messages that wait to be taken. To take one that is there needs no new task, as the client's ``next_msg`` does.

    Args:
        messages_max: if more wait, the oldest are dropped; None: no limit.
    """

    def __init__(self, connection: Connection, messages_max: int | None = None) -> None:
        self._connection = connection
        self._messages: deque[Msg] = deque(maxlen=messages_max)
        self._arrived = asyncio.Event()

    async def put(self, message: Msg) -> None:
        """Add a message: the callback of a subscription."""
        self._messages.append(message)
        self._arrived.set()

    async def take(self, silence_s: float | None = None) -> Msg | None:
        """The next message; None after the connection was closed.

        Raises:
            TimeoutError: nothing came for so long.
        """
        while not self._messages:
            self._arrived.clear()
            with self._connection.woken_at_the_end(self._arrived):
                if self._connection.closed:
                    return None
                async with asyncio.timeout(silence_s):
                    await self._arrived.wait()
        return self._messages.popleft()
