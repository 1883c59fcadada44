"""Heartbeats and orders in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

from elasticdl.shared.bus.memory.transport import Client
from elasticdl.shared.bus.ports import OrderHandler, StopServing
from elasticdl.shared.bus.stored_events import shortened
from elasticdl.shared.bus.terms import LaterTermError, Terms
from elasticdl.shared.errors import ElasticDLError, PermanentError, ProtocolError, TransientError
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.names import PodName
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.repeated_lines import RepeatedLines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """An order on its way; ``answer``: called by the broker with the answer: None, or why the order was refused."""

    data: bytes
    cause: str
    term: int
    answer: Callable[[ElasticDLError | None], None]


class _NotServedError(TransientError):
    """No process serves this name."""


class OrderServer:
    """Carries out the orders to one process, one after the other."""

    def __init__(self, client: Client, handler: OrderHandler) -> None:
        self.client = client
        self.obeyed: list[int] = []
        """Terms of the orders that were obeyed, in their order."""
        self.orders: asyncio.Queue[_Order] = asyncio.Queue()
        self._handler = handler
        self._terms = Terms()

    async def run(self) -> None:
        """Serve forever."""
        while True:
            order = await self.orders.get()
            refusal: ElasticDLError | None = None
            try:
                self._terms.check(order.term)
                await self._handler(codec.decode_command(order.data), order.cause)
                self._terms.remember(order.term)
                self.obeyed.append(order.term)
            except ElasticDLError as error:
                refusal = error
            self.client.transport.send("answer", partial(order.answer, refusal))


class Subscriptions:
    """The clients that listen for heartbeats and orders."""

    def __init__(self) -> None:
        self.heartbeats: list[tuple[Client, asyncio.Queue[bytes | None]]] = []
        self.orders: dict[PodName, list[OrderServer]] = {}

    def drop(self, client: Client) -> None:
        """A client's connection ended."""
        for listener, queue in self.heartbeats:
            if listener is client:
                queue.put_nowait(None)
        self.heartbeats = [each for each in self.heartbeats if each[0] is not client]
        for pod, servers in self.orders.items():
            self.orders[pod] = [server for server in servers if server.client is not client]


class MemorySignals:
    """See ``ports.Signals``."""

    def __init__(self, client: Client, subscriptions: Subscriptions) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._lines = RepeatedLines(get_logger())
        self.served: list[OrderServer] = []
        """What this client serves."""

    async def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Send a heartbeat to all who listen."""
        data = codec.encode_heartbeat(heartbeat)

        def publish() -> None:
            for listener, queue in self._subscriptions.heartbeats:
                listener.transport.deliver(partial(queue.put_nowait, data))

        self._client.transport.send("heartbeat", publish)

    async def heartbeats(self) -> AsyncIterator[Heartbeat]:
        """Heartbeats from now on."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        subscription = (self._client, queue)
        self._subscriptions.heartbeats.append(subscription)
        try:
            while (data := await queue.get()) is not None:
                try:
                    heartbeat = codec.decode_heartbeat(data)
                except ProtocolError as error:
                    self._lines.warning("malformed heartbeat ignored", reason=shortened(str(error)))
                    continue
                yield heartbeat
        finally:
            if subscription in self._subscriptions.heartbeats:
                self._subscriptions.heartbeats.remove(subscription)

    async def order(self, pod: PodName, command: Command, cause: str, *, term: int = 0) -> None:
        """Have a process do something; the answer of the first that serves under the name counts."""
        answered: asyncio.Future[ElasticDLError | None] = asyncio.get_running_loop().create_future()

        def receive(refusal: ElasticDLError | None) -> None:
            if not answered.done():
                answered.set_result(refusal)

        def answer(refusal: ElasticDLError | None) -> None:
            self._client.transport.deliver(partial(receive, refusal))

        order = _Order(data=codec.encode_command(command), cause=cause, term=term, answer=answer)

        def publish() -> None:
            servers = self._subscriptions.orders.get(pod, [])
            if not servers:
                answer(_NotServedError(f"{pod} does not take orders now"))
            for server in servers:
                server.client.transport.deliver(partial(server.orders.put_nowait, order))

        self._client.transport.send("order", publish)
        await asyncio.wait([answered], timeout=self._client.settings.order_answer_s)
        if not answered.done():
            raise TransientError(f"{pod} did not answer the order {type(command).__name__}")
        match answered.result():
            case None:
                return
            case _NotServedError() as error:
                raise error
            case refusal:
                text = f"{pod} refused {type(command).__name__}: {str(refusal) or type(refusal).__name__}"
                raise (
                    LaterTermError(text, latest=refusal.latest)
                    if isinstance(refusal, LaterTermError)
                    else PermanentError(text)
                )

    async def serve_orders(self, pod: PodName, handler: OrderHandler) -> StopServing:
        """Take orders under this name from now on."""
        server = OrderServer(self._client, handler)
        self.served.append(server)
        self._subscriptions.orders.setdefault(pod, []).append(server)
        self._client.transport.start(server.run())

        async def stop() -> None:
            servers = self._subscriptions.orders.get(pod, [])
            if server in servers:
                servers.remove(server)

        return stop
