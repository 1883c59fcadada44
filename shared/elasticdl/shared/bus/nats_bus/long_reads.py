"""Reads the present events of a long log, over a socket of its own.

The client is made for single messages, each of which costs it 12 us; this reads them in large pieces, at 2 us for each.
It saves time only: if anything happens that it does not expect, as the loss of the connection, it ends with
``LongReadError``, and its user continues with ``follow`` after the last event.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import Connection
from elasticdl.shared.bus.nats_bus.follow import (
    PULL_EXPIRES_S,
    StoredMessage,
    create_consumer,
    headers_of,
    sequence_numbers,
)
from elasticdl.shared.bus.nats_bus.streams import NANOSECONDS
from elasticdl.shared.bus.stored_events import joined

MESSAGES_MIN = 2048
"""Fewer messages are left to the client."""
_FIRST_BATCH, _BATCH_MAX = 256, 8192
"""Messages of the first request, for readers that look for one of the first events, and of the largest ones."""
_PIECE_BYTES = 1 << 20
_SILENCE_S = 5.0
_USUAL = (
    rb"HMSG %b(\S{1,64}) 1 \$JS\.ACK\.(?:[^. ]+\.[^. ]+\.)??%b\.(\d+)\.\d+\.\d+\.\d+ (\d+) (\d+)\r\n"
    rb"NATS/1\.0\r\nNats-Msg-Id: ([!-~]{1,64})\.([1-9]\d{0,18})\r\n\r\n"
)
"""How nearly all events arrive: the end of the subject, the number, the bytes of the headers and of all, the id."""


class LongReadError(Exception):
    """The rest has to be read in another way."""


async def read_long(connection: Connection, after: int, last: int) -> AsyncIterator[list[bytes | StoredMessage]]:
    """The events above ``after`` until ``last``, some at a time: nearly all as whole envelopes, as they are encoded.

    Raises:
        LongReadError: no more can be read here.
        TransientError: NATS does not answer.
        RefusedError: NATS refuses the request.
    """
    stream = subjects.events_stream(connection.job)
    server = connection.client.connected_url
    if server is None:
        raise LongReadError("not connected")
    consumer = await create_consumer(connection, stream, after + 1)
    events = _Events(connection, f"{stream}.{consumer}.1", after)
    inbox = connection.client.new_inbox()
    requested, size = after, _FIRST_BATCH
    try:
        async with asyncio.timeout(_SILENCE_S):
            reader, writer = await asyncio.open_connection(server.hostname, server.port, limit=_PIECE_BYTES)
    except (OSError, TimeoutError) as error:
        raise LongReadError(str(error)) from error
    try:
        async with asyncio.timeout(_SILENCE_S):
            await _log_in(connection, reader, writer)
        writer.write(b"SUB %b 1\r\n" % inbox.encode())
        while events.seq < last:
            while requested < last and requested - events.seq < size // 2:
                batch = min(size, last - requested)
                size = min(2 * size, _BATCH_MAX)
                request = json.dumps({"batch": batch, "expires": PULL_EXPIRES_S * NANOSECONDS}).encode()
                target = f"PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer} {inbox} {len(request)}\r\n"
                writer.write(target.encode() + request + b"\r\n")
                requested += batch
            async with asyncio.timeout(_SILENCE_S):
                piece = await reader.read(_PIECE_BYTES)
            if not piece:
                raise LongReadError("the connection is lost")
            yield events.take(piece, writer.write)
    except (OSError, TimeoutError, ValueError) as error:  # A ValueError: it is not what a server sends.
        raise LongReadError(repr(error)) from error
    finally:
        writer.close()


async def _log_in(connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    line = await reader.readline()
    if not line.startswith(b"INFO ") or json.loads(line[5:]).get("tls_required"):
        raise LongReadError("not a server that is read without TLS")
    options: dict[str, Any] = {"verbose": False, "headers": True, "no_responders": True, "lang": "python"}
    for name, value in connection.credentials.items():
        options["pass" if name == "password" else "auth_token" if name == "token" else name] = value
    writer.write(b"CONNECT %b\r\nPING\r\n" % json.dumps(options).encode())
    while (line := await reader.readline()) != b"PONG\r\n":
        if not line.startswith((b"INFO ", b"+OK")):
            raise LongReadError(f"refused: {line.decode(errors='replace')}")


class _Events:
    """Takes apart what the server sends; ``seq``: number of the last event."""

    def __init__(self, connection: Connection, consumer: str, after: int) -> None:
        self.seq = after
        self._rest = b""
        prefix = subjects.event_patterns(connection.job)[0].removesuffix(">").encode()
        self._usual = re.compile(_USUAL % (re.escape(prefix), re.escape(consumer.encode()))).match

    def take(self, piece: bytes, answer: Callable[[bytes], None]) -> list[bytes | StoredMessage]:
        """The events that are complete with the next piece. Raises ``LongReadError``."""
        data, place = self._rest + piece, 0
        found: list[bytes | StoredMessage] = []
        usual, size, seq = self._usual, len(data), self.seq
        while True:
            event: bytes | StoredMessage | None = None
            if frame := usual(data, place):
                name, number, head, whole, incarnation, count = frame.groups()
                start = frame.end()
                end = start + int(whole) - int(head)
                if end + 2 > size:
                    break
                its_seq = int(number)
                event = joined(name, incarnation, count, data[start : start + 2], data[start + 2 : end])
            if not event:
                end, event = _unusual(data, place, answer)
                if end < 0:
                    break
                its_seq = event.seq if event else 0
            place = end + 2
            if event:
                if its_seq != seq + 1:
                    raise LongReadError(f"event {its_seq} follows {seq}")
                seq = its_seq
                found.append(event)
        self.seq, self._rest = seq, data[place:]
        return found


def _unusual(data: bytes, place: int, answer: Callable[[bytes], None]) -> tuple[int, StoredMessage | None]:
    """Where anything that the server may send ends, without its line end; -1: not yet. And the event, if it is one."""
    end = data.find(b"\r\n", place)
    if end < 0:
        return -1, None
    verb, *words = data[place:end].decode().split(" ")
    if verb == "-ERR":
        raise LongReadError(" ".join(words))
    if verb == "PING":
        answer(b"PONG\r\n")
    if verb not in ("MSG", "HMSG"):
        return end, None
    start, sizes = end + 2, words[-2:] if verb == "HMSG" else ["0", words[-1]]
    body, end = start + int(sizes[0]), start + int(sizes[1])
    if end + 2 > len(data):
        return -1, None
    head, reply = data[start:body], words[2]
    if reply.startswith("$JS.ACK."):
        seq, _ = sequence_numbers(reply)
        return end, StoredMessage(seq=seq, subject=words[0], headers=headers_of(head), data=data[body:end])
    status = head.partition(b"\r\n")[0].decode(errors="replace")
    if "Batch Completed" not in status:
        raise LongReadError(status)
    return end, None
