"""Requests that are answered with stored messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from elasticdl.shared.bus.nats_bus.connection import Connection

_NO_RESPONDERS = "503"


class Status(NamedTuple):
    """Why the server sends no further messages."""

    code: str
    description: str


@dataclass(slots=True)
class _Answer:
    """What has arrived for a request.

    Attributes:
        status: the server's last word, if it has sent one.
        complete: set when nothing more will come.
    """

    wanted: int
    messages: list[Msg] = field(default_factory=list)
    status: Status | None = None
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, message: Msg) -> None:
        headers = message.headers or {}
        if code := headers.get("Status"):
            self.status = Status(code, headers.get("Description", code))
        else:
            self.messages.append(message)
        if self.status or len(self.messages) == self.wanted:
            self.complete.set()


class StoredMessageInbox:
    """Requests stored messages, one request after the other, over one subscription.

    A stored message arrives under the subject that it was stored under, so the client's shared inbox would not
    recognise it. A subscription for each request costs the server and the client more than the request. There is a new
    one only after a request was given up: its answer may still come, and has no number that tells it from the next one.

    Args:
        on_late: is called with an answer whose request was given up.
    """

    def __init__(self, connection: Connection, on_late: Callable[[Msg], Awaitable[None]]) -> None:
        self._connection = connection
        self._on_late = on_late
        self._subscription: Subscription | None = None
        self._given_up: Subscription | None = None
        """Where the answer to the last request that was given up may still arrive."""
        self._turn = asyncio.Lock()
        self._answer: _Answer | None = None

    async def ask(self, subject: str, payload: bytes, wanted: int) -> tuple[list[Msg], Status | None]:
        """Send a request once.

        Args:
            payload: asks for ``wanted`` messages, or for those that there are now.
            wanted: at least 1.

        Returns:
            The messages that there are now; the server's status if they are fewer than wanted.
        """
        async with self._turn:
            answer = _Answer(wanted)
            await self._connection.translated(subject, payload, lambda: self._ask(subject, payload, answer))
            return answer.messages, answer.status

    async def _ask(self, subject: str, payload: bytes, answer: _Answer) -> None:
        client = self._connection.client
        if self._subscription is None:
            self._subscription = await self._subscribe(client.new_inbox())
        self._answer = answer
        try:
            await client.publish(subject, payload, reply=self._subscription.subject)
            async with asyncio.timeout(self._connection.settings.answer_s):
                await answer.complete.wait()
        except TimeoutError as error:
            await self._give_up(self._subscription)
            if not answer.messages:
                raise nats.errors.TimeoutError from error
        except asyncio.CancelledError:
            await self._give_up(self._subscription)
            raise
        finally:
            self._answer = None
        if answer.status and answer.status.code == _NO_RESPONDERS:
            raise nats.errors.NoRespondersError

    async def _subscribe(self, inbox: str) -> Subscription:
        async def receive(message: Msg) -> None:
            is_present = self._subscription is not None and self._subscription.subject == inbox
            if is_present and self._answer is not None and not self._answer.complete.is_set():
                self._answer.add(message)
            else:
                await self._on_late(message)

        return await self._connection.client.subscribe(inbox, cb=receive)

    async def _give_up(self, subscription: Subscription) -> None:
        former, self._given_up, self._subscription = self._given_up, subscription, None
        if former is not None:
            with contextlib.suppress(nats.errors.Error):  # The connection is closed, and the subscription with it.
                await former.unsubscribe()
