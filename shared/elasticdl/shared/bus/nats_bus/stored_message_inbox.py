"""Requests that are answered with a stored message."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from elasticdl.shared.bus.nats_bus.connection import Connection

_NO_RESPONDERS = "503"


class StoredMessageInbox:
    """Requests stored messages, one after the other, over one subscription.

    A stored message arrives under the subject that it was stored under, so the client's shared inbox would not
    recognise it. A subscription for each request costs the server and the client more than the request. There is a new
    one only after a request was given up: its answer may still come, and has no number that tells it from the next one.

    Args:
        connection: to the broker.
        on_late: is called with an answer whose request was given up.
    """

    def __init__(self, connection: Connection, on_late: Callable[[Msg], Awaitable[None]]) -> None:
        self._connection = connection
        self._on_late = on_late
        self._subscription: Subscription | None = None
        self._given_up: Subscription | None = None
        """Where the answer to the last request that was given up may still arrive."""
        self._turn = asyncio.Lock()
        self._answer: asyncio.Future[Msg] | None = None

    async def ask(self, subject: str, payload: bytes) -> Msg:
        """Send a request once.

        Raises:
            TransientError: no answer.
            PermanentError: the connection is closed.
        """
        async with self._turn:
            return await self._connection.translated(subject, payload, lambda: self._ask(subject, payload))

    async def _ask(self, subject: str, payload: bytes) -> Msg:
        client = self._connection.client
        if self._subscription is None:
            self._subscription = await self._subscribe(client.new_inbox())
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._answer = answer
        try:
            await client.publish(subject, payload, reply=self._subscription.subject)
            async with asyncio.timeout(self._connection.settings.answer_s):
                message = await answer
        except TimeoutError as error:
            await self._give_up(self._subscription)
            raise nats.errors.TimeoutError from error
        except asyncio.CancelledError:
            await self._give_up(self._subscription)
            raise
        finally:
            self._answer = None
        if (message.headers or {}).get("Status") == _NO_RESPONDERS:
            raise nats.errors.NoRespondersError
        return message

    async def _subscribe(self, inbox: str) -> Subscription:
        async def receive(message: Msg) -> None:
            is_present = self._subscription is not None and self._subscription.subject == inbox
            if is_present and self._answer is not None and not self._answer.done():
                self._answer.set_result(message)
            else:
                await self._on_late(message)

        return await self._connection.client.subscribe(inbox, cb=receive)

    async def _give_up(self, subscription: Subscription) -> None:
        former, self._given_up, self._subscription = self._given_up, subscription, None
        if former is not None:
            with contextlib.suppress(nats.errors.Error):  # The connection is closed, and the subscription with it.
                await former.unsubscribe()
