"""How a simulated process reaches the in-memory broker: over a network that delays, loses and cuts.

This is the seam at which faults are injected; the broker, the retries and the codec above it are those that ship.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tests.sim.network import BROKER

from elasticdl.shared.errors import PermanentError, TransientError

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World

T = TypeVar("T")

ANSWER_S = 2.0
"""Seconds after which a client stops waiting for an answer, as in ``BusSettings``."""
RECONNECT_S = 0.5
"""Seconds between two looks whether a lost connection is back."""


class SimTransport:
    """The connection of one process; see ``elasticdl.shared.bus.memory.Transport``."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._loop = world.loop
        self._network = world.network

    @property
    def connected(self) -> bool:
        """Whether messages pass at the moment."""
        return self._world.broker.server.up and self._network.reaches(self._process.name, BROKER)

    async def request(self, what: str, operation: Callable[[], T]) -> T:
        """One try; what becomes of it is decided when it is sent."""
        answer: asyncio.Future[T] = self._loop.create_future()
        fate = self._network.fate()
        if self._process.name in self._network.delayed:
            self._network.delayed.remove(self._process.name)
            fate = "late"
            self._loop.call_soon(self._process.probe, "delayed")
        if fate == "lost" or not self.connected:
            self._loop.later(ANSWER_S, fail, answer)
        elif fate == "late":
            self._loop.later(ANSWER_S, fail, answer)
            late_s = ANSWER_S * 2 * self._network.random.random()
            self._loop.later(late_s, self._arrive_on, self._world.disks_lost, what, operation, answer, False)
        else:
            latency_s, answered = self._network.latency_s(), fate == "ok"
            self._loop.later(latency_s, self._arrive_on, self._world.disks_lost, what, operation, answer, answered)
        result = await answer
        self._process.probe(f"{what}.acked")
        return result

    def send(self, what: str, operation: Callable[[], None]) -> None:
        """Lost without notice, now and then."""
        del what
        if self.connected and self._network.fate() == "ok":
            self._loop.later(self._network.latency_s(), self._arrive, operation)

    def deliver(self, action: Callable[[], None], *, keep: bool = False) -> None:
        """A message of the broker."""
        if not self._process.instance.alive:
            return
        if self.connected:
            self._loop.later(self._network.latency_s(), action)
        elif keep:
            self._loop.later(RECONNECT_S, self._deliver_later, action)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task of the process; its error is the process' end."""
        self._process.instance.own(coroutine)
        return self._process.spawn(lambda: coroutine)

    def _deliver_later(self, action: Callable[[], None]) -> None:
        self.deliver(action, keep=True)

    def _arrive(self, operation: Callable[[], None]) -> None:
        if self._world.broker.server.up:
            operation()

    def _arrive_on(
        self, disks_lost: int, what: str, operation: Callable[[], T], answer: asyncio.Future[T], answered: bool
    ) -> None:
        """A broker that has lost its disk has ended: requests on their way to it arrive at no other one."""
        if disks_lost == self._world.disks_lost:
            self._execute(what, operation, answer, answered)
        else:
            self._loop.later(ANSWER_S, fail, answer)

    def _execute(self, what: str, operation: Callable[[], T], answer: asyncio.Future[T], answered: bool) -> None:
        if not self._world.broker.server.up:
            self._loop.later(ANSWER_S, fail, answer)
            return
        result: T | PermanentError
        try:
            result = operation()
        except PermanentError as error:
            result = error
        if self._process.instance.alive:
            self._process.probe(f"{what}.stored")
        if answered and self.connected:
            self._loop.later(self._network.latency_s(), _answer, answer, result)
        else:
            self._loop.later(ANSWER_S, fail, answer)


def settle(future: asyncio.Future[T], value: T) -> None:
    """Complete a future that may be complete."""
    if not future.done():
        future.set_result(value)


def fail(future: asyncio.Future[Any]) -> None:
    """Let a future fail as if no answer had come."""
    if not future.done():
        future.set_exception(TransientError("no answer"))


def _answer(future: asyncio.Future[Any], result: object) -> None:
    if isinstance(result, PermanentError):
        if not future.done():
            future.set_exception(result)
    else:
        settle(future, result)
