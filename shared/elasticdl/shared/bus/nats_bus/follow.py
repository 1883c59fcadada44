"""Follows a stream from a position on, in order and without gaps, across reconnections; never returns."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import nats.errors
from nats.aio.msg import Msg

from elasticdl.shared.bus.nats_bus.connection import STREAM_NOT_FOUND, Connection, RefusedError
from elasticdl.shared.bus.nats_bus.inbox import Inbox
from elasticdl.shared.bus.nats_bus.streams import NANOSECONDS
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.errors import PermanentError, TransientError

PULL_EXPIRES_S = 30
_PULL_BYTES_MAX = 32 << 20
_CONSUMER_KEPT_S = 60
_BUSY_PER_S = 50
"""Messages per second from which on a reader is busy."""
_BUSY_S = 0.25
"""Seconds over which they are counted."""
_HEARTBEATS_MISSED_MAX = 3
_HEARTBEAT = "100"
_ACK_TOKENS = 9
"""Tokens of the reply subject of a delivered message, without domain and account."""


class StoredMessage(NamedTuple):  # A frozen dataclass takes three times as long to make.
    """A message with its place in the stream."""

    seq: int
    subject: str
    headers: Mapping[str, str]
    data: bytes


class _BrokenError(Exception):
    """The consumer has to be created again: a message was lost, or NATS was unreachable."""


async def follow(connection: Connection, stream: str, after: int, *, dense: bool) -> AsyncIterator[StoredMessage]:
    """Messages with sequence numbers above ``after``, then new ones as they arrive.

    Args:
        dense: the stream has every number, so a missing one is a loss.

    Raises:
        PermanentError: the stream is gone or ends before ``after``; if ``dense``, also when a message is missing.
    """
    while not connection.closed:
        try:
            await _check_stream(connection, stream, after, dense=dense)
            consumer = await create_consumer(connection, stream, after + 1)
            async for message in _pull(connection, stream, consumer):
                if dense and message.seq != after + 1:
                    raise PermanentError(f"messages between {after} and {message.seq} are missing in {stream}")
                after = message.seq
                yield message
        except (_BrokenError, TransientError):
            await asyncio.sleep(connection.settings.retry_pause_s)


async def _check_stream(connection: Connection, stream: str, after: int, *, dense: bool) -> None:
    try:
        state = (await connection.api(f"STREAM.INFO.{stream}", {}, once=True))["state"]
    except RefusedError as error:
        if error.error_code == STREAM_NOT_FOUND:
            raise PermanentError(f"the broker has lost the stream {stream}") from error
        raise
    if state["last_seq"] < after:
        raise PermanentError(f"{stream} ends at {state['last_seq']}, but record {after} was read from it: it was lost")
    if dense and state["first_seq"] > after + 1:
        raise PermanentError(f"{stream} begins at {state['first_seq']}: what follows {after} was lost")


async def create_consumer(connection: Connection, stream: str, first: int) -> str:
    """A consumer that delivers the messages from this number on, without acknowledgements; returns its name."""
    name = f"reader-{secrets.token_hex(8)}"
    config = {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": first,
        "ack_policy": "none",
        "replay_policy": "instant",
        "inactive_threshold": _CONSUMER_KEPT_S * NANOSECONDS,
        "mem_storage": True,
        "num_replicas": 1,
    }
    request = {"stream_name": stream, "config": config, "action": "create"}
    await connection.api(f"CONSUMER.CREATE.{stream}.{name}", request, once=True)
    return name


class _Pace:
    """How many messages the next request is for, and when it is sent.

    A reader that receives each message as it arrives wakes up for each. A busy reader may therefore ask for what is
    there a few times a second (``read_interval_s``), or as soon as it is busy (``gather_s``).
    """

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._waits = not settings.read_interval_s
        self._since_s = 0.0
        self._recent = 0
        self._is_busy = False

    def request(self) -> dict[str, Any]:
        settings = self._settings
        request: dict[str, Any] = {"batch": settings.read_batch, "max_bytes": _PULL_BYTES_MAX}
        if not self._waits:
            return request | {"no_wait": True}
        heartbeat = {"idle_heartbeat": int(settings.heartbeat_s * NANOSECONDS)}
        batch = {"batch": 1} if settings.gather_s else {}
        return request | {"expires": PULL_EXPIRES_S * NANOSECONDS} | heartbeat | batch

    def pause_s(self, received: int) -> float:
        """Seconds before the next request, after one that was answered with ``received`` messages."""
        settings = self._settings
        if settings.read_interval_s:
            return 0.0 if received == settings.read_batch else settings.read_interval_s
        if not settings.gather_s:
            return 0.0
        self._waits = received == 0
        self._recent += received
        elapsed_s = time.monotonic() - self._since_s
        if elapsed_s >= _BUSY_S:
            self._is_busy = self._recent >= _BUSY_PER_S * elapsed_s
            self._since_s, self._recent = time.monotonic(), 0
        return settings.gather_s if self._is_busy and received < settings.read_batch else 0.0


async def _pull(connection: Connection, stream: str, consumer: str) -> AsyncIterator[StoredMessage]:
    """Messages of one consumer, until something goes wrong."""
    settings = connection.settings
    inbox = Inbox(connection)
    address = connection.client.new_inbox()
    subscription = await connection.client.subscribe(f"{address}.*", cb=inbox.put)
    pace = _Pace(settings)
    delivered = 0
    try:
        for number in itertools.count(1):
            if not connection.client.is_connected:
                raise _BrokenError
            reply = f"{address}.{number}"
            next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
            request = pace.request()
            await connection.client.publish(next_subject, json.dumps(request).encode(), reply=reply)
            before = delivered
            for _ in range(request["batch"]):
                message = await _next(inbox, reply, settings.heartbeat_s * _HEARTBEATS_MISSED_MAX)
                if connection.closed:
                    return
                if message is None:
                    break
                seq, place = sequence_numbers(message.reply)
                delivered += 1
                if place != delivered:
                    raise _BrokenError
                yield StoredMessage(seq=seq, subject=message.subject, headers=message.headers or {}, data=message.data)
            await asyncio.sleep(pace.pause_s(delivered - before))
    except nats.errors.ConnectionClosedError:
        return
    except (TimeoutError, nats.errors.Error) as error:
        raise _BrokenError from error
    finally:
        if not connection.closed:
            await subscription.unsubscribe()


def headers_of(block: bytes) -> dict[str, str]:
    """The headers of a message, from the bytes that the server sends, or that JetStream's API returns."""
    lines = (line.partition(": ") for line in block.decode(errors="replace").split("\r\n"))
    return {name: value for name, separator, value in lines if separator}


def sequence_numbers(reply: str) -> tuple[int, int]:
    """A delivered message's number in the stream and its number in the consumer.

    Args:
        reply: ``$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>``; newer servers
            put a domain and an account behind ``ACK``. The client's own ``Msg.metadata`` costs ten times as much.
    """
    tokens = reply.split(".")
    first = 5 if len(tokens) == _ACK_TOKENS else 7
    return int(tokens[first]), int(tokens[first + 1])


async def _next(inbox: Inbox, reply: str, silence_s: float) -> Msg | None:
    """The next message, or None when the pull request is used up or this client hangs up.

    The server also ends a request of which it has sent every message ("409 Batch Completed"). That status would end the
    next request, whose messages would then be taken for those of the one after it.
    """
    while (message := await inbox.take(silence_s)) is not None:
        status = (message.headers or {}).get("Status")
        if status is None:
            return message
        if status == _HEARTBEAT or message.subject != reply:
            continue
        description = (message.headers or {}).get("Description", "")
        if status in ("404", "408") or "Batch Completed" in description:
            return None
        raise _BrokenError(description)
    return None
