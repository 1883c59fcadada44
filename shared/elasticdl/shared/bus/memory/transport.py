"""How one client reaches the broker, and how the broker reaches its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from elasticdl.shared.bus.retries import RetryPolicy
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.errors import TransientError

T = TypeVar("T")


class Transport(Protocol):
    """The connection of one client. An operation is what the broker does when a message has arrived."""

    @property
    def connected(self) -> bool:
        """Whether messages pass at the moment."""
        ...

    async def request(self, what: str, operation: Callable[[], T]) -> T:
        """Have the broker do something and return its answer; one try.

        Raises:
            TransientError: no answer; the operation may have been carried out or not, or is yet to be.
        """
        ...

    def send(self, what: str, operation: Callable[[], None]) -> None:
        """Have the broker do something without an answer; lost without notice when the broker is away."""
        ...

    def deliver(self, action: Callable[[], None], *, keep: bool = False) -> None:
        """Bring a message to the client; if it is not connected, later (``keep``), else the message is lost."""
        ...

    def start(self, coroutine: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run a background task of the client."""
        ...


class Server:
    """Whether the broker is up, and what is to be delivered when it is up again."""

    def __init__(self) -> None:
        self.up = True
        self._kept: list[Callable[[], None]] = []

    def stop(self) -> None:
        """The server dies; what it acknowledged is on its disk."""
        self.up = False

    def start(self) -> None:
        """The server is back."""
        self.up = True
        kept, self._kept = self._kept, []
        for action in kept:
            action()

    def keep(self, action: Callable[[], None]) -> None:
        """Do something when the server is back."""
        self._kept.append(action)


class DirectTransport:
    """A perfect network: everything arrives at once. See ``Transport``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        """Whether the broker is up."""
        return self._server.up

    async def request(self, what: str, operation: Callable[[], T]) -> T:
        """Ask the broker, which answers at once if it is up."""
        if not self._server.up:
            raise TransientError(f"{what}: the broker is away")
        return operation()

    def send(self, what: str, operation: Callable[[], None]) -> None:
        """Tell the broker something, if it is up."""
        del what
        if self._server.up:
            operation()

    def deliver(self, action: Callable[[], None], *, keep: bool = False) -> None:
        """Tell the client something."""
        if self._server.up:
            action()
        elif keep:
            self._server.keep(action)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


@dataclass(slots=True, kw_only=True)
class Client:
    """What the parts of one client share."""

    transport: Transport
    settings: BusSettings = field(default_factory=BusSettings)
    closed: bool = False
    _retries: RetryPolicy = field(init=False)

    def __post_init__(self) -> None:
        self._retries = RetryPolicy(limit_s=self.settings.retry_s, pause_s=self.settings.retry_pause_s)

    async def ask(self, what: str, operation: Callable[[], T]) -> T:
        """Have the broker do something; repeated until it answers."""
        return await self._retries.run(what, partial(self.transport.request, what, operation))


class Changes:
    """Wakes the clients that wait for something new in a stream."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Client, asyncio.Future[None]]] = []

    def notify(self) -> None:
        """Wake everyone who waits, as soon as they are connected."""
        waiting, self._waiting = self._waiting, []
        for client, future in waiting:
            client.transport.deliver(partial(_settle, future), keep=True)

    def subscribe(self, client: Client) -> asyncio.Future[None]:
        """A future that the next ``notify`` completes."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((client, future))
        return future

    async def wait(self, client: Client, *, ready: bool) -> None:
        """Wait for the next change, or only for the connection."""
        if ready:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            client.transport.deliver(partial(_settle, future), keep=True)
        else:
            future = self.subscribe(client)
        await future


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
