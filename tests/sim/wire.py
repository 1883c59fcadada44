"""Connections from workers to ps: ordered in each direction, cut at any moment, possibly with requests on the way.

Requests and replies travel as the frames that ship: what a peer gets is decoded from bytes, never a shared object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tests.sim.loop import NO_PROCESS

from elasticdl.shared.names import Incarnation
from elasticdl.shared.wire.connection import ConnectionLostError
from elasticdl.shared.wire.frames import (
    HEADER_BYTES,
    FrameLimits,
    Tensor,
    decode_header,
    decode_table,
    encode,
    views,
)
from elasticdl.shared.wire.message_codec import decode_reply, encode_request
from elasticdl.shared.wire.messages import Request
from elasticdl.worker.ps_client.connection import Answer

if TYPE_CHECKING:
    from tests.sim.ps import PsProcess
    from tests.sim.worker import WorkerProcess

CONNECT_S = 5.0
REQUEST_S = 30.0
LIMITS = FrameLimits()


class Connection:
    """From one instance of a worker to one instance of a ps."""

    def __init__(self, client: WorkerProcess, server: PsProcess) -> None:
        self.lost = False
        self.client = client
        self.server = server
        self.identity = server.incarnation
        self._network = client.world.network
        self._loop = client.world.loop
        self._waiting: list[asyncio.Future[Answer]] = []
        self._requests = 0
        self._arrives_s = 0.0
        self._returns_s = 0.0
        self._still_arrives = True
        self._number = len(server.connections) + 1

    def send(self, request: Request) -> asyncio.Future[Answer]:
        """Send a request; the future fails when the connection is lost first."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self.lost:
            future.set_exception(ConnectionLostError("lost"))
            return future
        self._requests += 1
        frame = _to_bytes(self._requests, *encode_request(request))
        self._waiting.append(future)
        self._arrives_s = max(self._arrives_s, self._loop.time() + self._network.latency_s())
        self._loop.call_at(self._arrives_s, self._arrive, frame, future, context=self.server.instance.context)
        self._loop.later(REQUEST_S, self._overdue, future)
        return future

    def reset(self, *, still_arrives: bool) -> None:
        """The connection ends; both sides see it a moment later.

        Args:
            still_arrives: requests that are on their way reach the server all the same.
        """
        if not self.lost:
            self._still_arrives = still_arrives
            self._lose()

    def _lose(self) -> None:
        self.lost = True
        delay_s = max(0.0, self._arrives_s - self._loop.time()) if self._still_arrives else 0.0
        self._loop.later(delay_s, self.server.on_closed, self._number)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            self._loop.later(self._network.latency_s(), _fail, future)

    def _overdue(self, future: asyncio.Future[Answer]) -> None:
        if not future.done():
            self._lose()

    def _arrive(self, frame: bytes, future: asyncio.Future[Answer]) -> None:
        if self.lost and not self._still_arrives:
            return
        if not self._network.reaches(self.client.name, self.server.name):
            return
        number, meta, tensors, buffer = _from_bytes(frame)
        response = self.server.answer(meta, tensors, self._number)
        _poison(buffer)  # The server reuses it for the next request.
        if response is None:
            return
        answer = _to_bytes(number, response.meta, response.tensors)
        response.sent()
        self._returns_s = max(self._returns_s, self._loop.time() + self._network.latency_s())
        self._loop.call_at(self._returns_s, self._return, future, answer, context=NO_PROCESS)

    def _return(self, future: asyncio.Future[Answer], frame: bytes) -> None:
        if future.done() or self.lost or not self._network.reaches(self.client.name, self.server.name):
            return
        self._waiting.remove(future)
        _, meta, tensors, buffer = _from_bytes(frame)
        reply, incarnation = decode_reply(meta, tensors)
        future.set_result(Answer(reply, Incarnation(incarnation), partial(_poison, buffer)))


def _to_bytes(number: int, meta: bytes, tensors: Sequence[Tensor]) -> bytes:
    return b"".join(encode(number, meta, tensors, LIMITS))


def _from_bytes(frame: bytes) -> tuple[int, bytes, tuple[Tensor, ...], Tensor]:
    """Number, meta, tensors, and the receive buffer that the tensors are views of."""
    header = decode_header(frame[:HEADER_BYTES], LIMITS)
    table_end = HEADER_BYTES + header.table_bytes
    places, payload_bytes = decode_table(frame[HEADER_BYTES:table_end], LIMITS)
    payload = table_end + header.meta_bytes
    buffer = np.frombuffer(frame, np.uint8, payload_bytes, payload).copy()
    return header.request, frame[table_end:payload], views(places, buffer), buffer


def _poison(buffer: Tensor) -> None:
    """Fill a returned receive buffer with bytes that are no number, so that later reads show."""
    buffer.fill(0xFF)


def _fail(future: asyncio.Future[Answer]) -> None:
    if not future.done():
        future.set_exception(ConnectionLostError("lost"))
