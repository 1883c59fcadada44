"""A NATS client that costs little: it does not reconnect, and one connection serves many simulated processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from urllib.parse import urlsplit

Receive = Callable[[str, str, bytes, bytes], None]
"""(subject, reply subject, header block, payload)."""


class Connection(asyncio.Protocol):
    """One connection. ``request`` answers by a callback; there is no time limit, as there is in services."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._receivers: dict[bytes, Receive] = {}
        self._answers: dict[str, Receive] = {}
        self._out: list[bytes] = []
        self._tokens = 0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport

    @classmethod
    async def open(cls, url: str) -> Connection:
        """Connect to a nats-server on this machine."""
        address = urlsplit(url)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, address.hostname or "", address.port or 4222)
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
        connection._write(f"CONNECT {json.dumps(options)}\r\n".encode())
        connection.subscribe("_INBOX.bench.*", connection._on_answer)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def close(self) -> None:
        """Close the connection; what was not sent is lost."""
        self._transport.abort()

    def subscribe(self, subject: str, receive: Receive) -> None:
        """Call ``receive`` with each message on a subject."""
        sid = str(len(self._receivers)).encode()
        self._receivers[sid] = receive
        self._write(b"SUB %s %s\r\n" % (subject.encode(), sid))

    def publish(self, subject: str, payload: bytes, *, reply: str = "", headers: bytes = b"") -> None:
        """Send a message; everything of one turn of the loop is written at once."""
        if headers:
            block = b"NATS/1.0\r\n" + headers + b"\r\n\r\n"
            command = f"HPUB {subject} {reply} {len(block)} {len(block) + len(payload)}\r\n".encode()
            self._write(b"".join((command, block, payload, b"\r\n")))
        else:
            self._write(b"".join((f"PUB {subject} {reply} {len(payload)}\r\n".encode(), payload, b"\r\n")))

    def request(
        self, subject: str, payload: bytes, answer: Receive, *, headers: bytes = b"", answers: bool = False
    ) -> str:
        """Send a request.

        Args:
            subject: where to.
            payload: the message.
            answer: is called with the answer.
            headers: header lines without the line end of the last one.
            answers: there may be several, until ``forget``.

        Returns:
            The reply subject's token.
        """
        self._tokens += 1
        token = str(self._tokens)
        self._answers[token] = answer if answers else lambda *message: self._answer_once(token, answer, *message)
        self.publish(subject, payload, reply=f"_INBOX.bench.{token}", headers=headers)
        return token

    def forget(self, token: str) -> None:
        """Ignore further answers."""
        self._answers.pop(token, None)

    def data_received(self, data: bytes) -> None:
        """Process the messages in what has arrived."""
        buffer = self._buffer
        buffer += data
        start = 0
        while (end := buffer.find(b"\r\n", start)) >= 0:
            line = bytes(buffer[start:end])
            if not line.startswith((b"MSG", b"HMSG")):
                start = end + 2
                self._on_command(line)
                continue
            words = line.split()
            size = int(words[-1])
            if len(buffer) < end + 4 + size:
                break
            body = bytes(buffer[end + 2 : end + 2 + size])
            start = end + 4 + size
            has_headers = words[0] == b"HMSG"
            reply = words[3].decode() if len(words) == (6 if has_headers else 5) else ""
            headers_end = int(words[-2]) if has_headers else 0
            self._receivers[words[2]](words[1].decode(), reply, body[:headers_end], body[headers_end:])
        del buffer[:start]

    def _on_command(self, line: bytes) -> None:
        if line == b"PING":
            self._write(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            raise RuntimeError(line.decode())

    def _on_answer(self, subject: str, reply: str, headers: bytes, payload: bytes) -> None:
        # Answers to pull requests arrive under the subject of the stored message: those have a subscription each.
        answer = self._answers.get(subject.rpartition(".")[2])
        if answer:
            answer(subject, reply, headers, payload)

    def _answer_once(self, token: str, answer: Receive, *message: object) -> None:
        self._answers.pop(token, None)
        answer(*message)  # type: ignore[arg-type]

    def _write(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out.clear()
