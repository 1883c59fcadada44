"""Connections from workers to ps: ordered in each direction, cut at any moment, possibly with requests on the way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.loop import NOBODYS

from elasticdl.shared.names import Incarnation
from elasticdl.shared.wire.connection import ConnectionLostError
from elasticdl.shared.wire.messages import Reply, Request

if TYPE_CHECKING:
    from tests.sim.ps import PsProcess
    from tests.sim.worker import WorkerProcess

CONNECT_S = 5.0
REQUEST_S = 30.0

Answer = tuple[Reply, Incarnation]


class Connection:
    """From one life of a worker to one life of a ps."""

    def __init__(self, client: WorkerProcess, server: PsProcess) -> None:
        self.lost = False
        self.client = client
        self.server = server
        self.identity = server.incarnation
        self._network = client.world.network
        self._loop = client.world.loop
        self._waiting: list[asyncio.Future[Answer]] = []
        self._arrives_s = 0.0
        self._returns_s = 0.0
        self._still_arrives = True

    def send(self, request: Request) -> asyncio.Future[Answer]:
        """Send a request; the future fails when the connection is lost first."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self.lost:
            future.set_exception(ConnectionLostError("lost"))
            return future
        self._waiting.append(future)
        self._arrives_s = max(self._arrives_s, self._loop.time() + self._network.latency_s())
        self._loop.call_at(self._arrives_s, self._arrive, request, future, context=self.server.life.context)
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
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            self._loop.later(self._network.latency_s(), _fail, future)

    def _overdue(self, future: asyncio.Future[Answer]) -> None:
        if not future.done():
            self._lose()

    def _arrive(self, request: Request, future: asyncio.Future[Answer]) -> None:
        if self.lost and not self._still_arrives:
            return
        if not self._network.reaches(self.client.name, self.server.name):
            return
        reply = self.server.answer(request)
        if reply is None:
            return
        self._returns_s = max(self._returns_s, self._loop.time() + self._network.latency_s())
        self._loop.call_at(self._returns_s, self._return, future, reply, context=NOBODYS)

    def _return(self, future: asyncio.Future[Answer], reply: Reply) -> None:
        if future.done() or self.lost or not self._network.reaches(self.client.name, self.server.name):
            return
        self._waiting.remove(future)
        future.set_result((reply, self.identity))


def _fail(future: asyncio.Future[Answer]) -> None:
    if not future.done():
        future.set_exception(ConnectionLostError("lost"))
