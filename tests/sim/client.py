"""Requests of one process to the broker, over a network that loses, repeats and delays; and who waits for what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim.broker import Broker, WrongLastSequenceError
from tests.sim.loop import Life, VirtualLoop
from tests.sim.network import BROKER, Network

from elasticdl.shared.errors import TransientError
from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.names import PodName

if TYPE_CHECKING:
    from tests.sim.bus import SimSignals

ANSWER_S = 2.0
PAUSE_S = 0.25
RETRY_S = 300.0

Probe = Callable[[str], None]
"""Told what has just happened in a process; may kill it there."""


class Hub:
    """What the clients of one broker shard: who waits for what."""

    def __init__(self, broker: Broker, network: Network) -> None:
        self.broker = broker
        self.network = network
        self.loop: VirtualLoop = network.loop
        self.readers: list[tuple[str, asyncio.Future[None]]] = []
        self.idle: list[tuple[str, asyncio.Future[None]]] = []
        self.listeners: dict[PodName, list[SimSignals]] = {}
        self.beats: list[tuple[Client, asyncio.Queue[Beat]]] = []
        self.obeyed: list[tuple[str, int]] = []
        """(life, term) of every order that was carried out."""

    def ring(self, waiting: list[tuple[str, asyncio.Future[None]]]) -> None:
        """Wake those who wait; somebody who can't be reached hears of it half a second later, or later still."""
        for name, future in waiting:
            self.tell(name, future)
        waiting.clear()

    def tell(self, name: str, future: asyncio.Future[None]) -> None:
        """Wake one who waits."""
        if self.reaches(name):
            self.loop.later(self.network.latency_s(), settle, future, None)
        else:
            self.loop.later(0.5, self.tell, name, future)

    def reaches(self, name: str) -> bool:
        """Whether a process has a connection to the broker."""
        return self.broker.up and self.network.reaches(name, BROKER)


class Client:
    """Requests of one process to the broker."""

    def __init__(self, hub: Hub, name: str, life: Life, probe: Probe) -> None:
        self.hub = hub
        self.name = name
        self.life = life
        self.probe = probe

    async def ask(self, what: str, operation: Callable[[], Any]) -> Any:
        """Have the broker do something, asking again until it answers.

        Raises:
            TransientError: it stayed away.
            WrongLastSequenceError: it refused.
        """
        loop = self.hub.loop
        give_up_s = loop.time() + RETRY_S
        while True:
            try:
                answer = await self.try_once(what, operation)
            except TransientError:
                if loop.time() > give_up_s:
                    raise
                await asyncio.sleep(PAUSE_S)
                continue
            self.probe(f"{what}.acked")
            return answer

    async def try_once(self, what: str, operation: Callable[[], Any]) -> Any:
        """One try."""
        network, loop = self.hub.network, self.hub.loop
        future: asyncio.Future[Any] = loop.create_future()
        fate = network.fate()
        if self.name in network.delayed:
            network.delayed.remove(self.name)
            fate = "late"
            loop.call_soon(self.probe, "delayed")
        if fate == "lost" or not self.hub.reaches(self.name):
            loop.later(ANSWER_S, fail, future)
        elif fate == "late":
            loop.later(ANSWER_S, fail, future)
            loop.later(ANSWER_S * 2 * network.random.random(), self._execute, what, operation, future, False)
        else:
            loop.later(network.latency_s(), self._execute, what, operation, future, fate == "ok")
        return await future

    def _execute(self, what: str, operation: Callable[[], Any], future: asyncio.Future[Any], answered: bool) -> None:
        loop, network = self.hub.loop, self.hub.network
        if not self.hub.broker.up:
            loop.later(ANSWER_S, fail, future)
            return
        deliver: Callable[[asyncio.Future[Any], Any], None] = settle
        try:
            answer = operation()
        except WrongLastSequenceError as error:
            answer, deliver = error, _refuse
        if self.life.alive:
            self.probe(f"{what}.stored")
        if answered and self.hub.reaches(self.name):
            loop.later(network.latency_s(), deliver, future, answer)
        else:
            loop.later(ANSWER_S, fail, future)


def settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _refuse(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def fail(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(TransientError("no answer"))
