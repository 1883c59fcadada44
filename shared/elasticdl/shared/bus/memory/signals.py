"""Heartbeats and orders in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from elasticdl.shared.bus.memory.client import Client
from elasticdl.shared.bus.ports import OrderHandler
from elasticdl.shared.bus.terms import Terms
from elasticdl.shared.errors import ElasticDLError, PermanentError, TransientError
from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.names import PodName


class OrderServer:
    """Runs a process' orders one after the other."""

    def __init__(self, handler: OrderHandler) -> None:
        self._handler = handler
        self._one_at_a_time = asyncio.Lock()
        self._terms = Terms()

    async def run(self, data: bytes, cause: str, term: int) -> None:
        """Run one order."""
        async with self._one_at_a_time:
            self._terms.admit(term)
            await self._handler(codec.decode_command(data), cause)


class MemorySignals:
    """See ``ports.Signals``."""

    def __init__(
        self,
        client: Client,
        beats: list[asyncio.Queue[bytes | None]],
        orders: dict[PodName, OrderServer],
    ) -> None:
        self._client = client
        self._beats = beats
        self._own_beats: list[asyncio.Queue[bytes | None]] = []
        self._orders = orders
        self._own_orders: dict[PodName, OrderServer] = {}

    async def beat(self, beat: Beat) -> None:
        """Tell everybody who listens."""
        data = codec.encode_beat(beat)
        for queue in self._beats:
            queue.put_nowait(data)

    async def beats(self) -> AsyncIterator[Beat]:
        """Heartbeats from now on."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._beats.append(queue)
        self._own_beats.append(queue)
        try:
            while (data := await queue.get()) is not None:
                yield codec.decode_beat(data)
        finally:
            self._beats.remove(queue)
            self._own_beats.remove(queue)

    async def order(self, pod: PodName, command: Command, cause: str, *, term: int = 0) -> None:
        """Have a process do something."""
        server = self._orders.get(pod)
        if server is None:
            raise TransientError(f"{pod} does not take orders now")
        try:
            await server.run(codec.encode_command(command), cause, term)
        except ElasticDLError as error:
            raise PermanentError(f"{pod} refused {type(command).__name__}: {error}") from error

    async def serve_orders(self, pod: PodName, handler: OrderHandler) -> None:
        """Take orders under this name from now on."""
        self._orders[pod] = self._own_orders[pod] = OrderServer(handler)

    def hang_up(self) -> None:
        """Stop listening to everything."""
        for queue in self._own_beats:
            queue.put_nowait(None)
        for pod, server in self._own_orders.items():
            if self._orders.get(pod) is server:
                del self._orders[pod]
