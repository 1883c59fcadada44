"""What all simulated processes have: an instance, a bus, a sequence of events, and an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.loop import Instance
from tests.sim.transport import SimTransport

from elasticdl.shared.errors import FencedError, PermanentError, ProtocolError, TransientError, UserError
from elasticdl.shared.failure_detection.heartbeat_loop import send_heartbeats
from elasticdl.shared.messages.events import Event
from elasticdl.shared.names import NOBODY, Incarnation, PodInstance, PodName, Service
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.exit_codes import EXIT_AWAY, exit_code

if TYPE_CHECKING:
    from tests.sim.world import World

HEARTBEAT_S = 1.0


class Process:
    """One instance of a process."""

    service: Service

    def __init__(self, world: World, name: PodName, run: Incarnation = NOBODY) -> None:
        self.world = world
        self.name = name
        self.pid = world.next_pid()
        self.incarnation = Incarnation(f"{name}.{self.pid}")
        self.pod_instance = PodInstance(str(self.pid))
        self.instance = Instance(world.loop, self.incarnation)
        self.clock = world.clock_of(name)
        self.bus = world.broker.connect(SimTransport(world, self))
        self.envelopes = EnvelopeFactory(
            service=self.service,
            name=name,
            incarnation=self.incarnation,
            run=run,
            instance=self.pod_instance,
            clock=self.clock,
        )
        self.exit_reason = ""
        """Why the platform has ended its pod; empty: it has not."""
        self._in_order = asyncio.Lock()

    async def main(self) -> None:
        """What the process does."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin."""
        self.instance.start(self._run())

    def spawn(self, coroutine: Callable[[], object]) -> asyncio.Task[None]:
        """Run a thread of this process; its error is the process' end."""
        return self.instance.start(self._guarded(coroutine))

    async def say(self, event: Event, *, cause: str = "") -> None:
        """Append an event; returns once it is acknowledged. Numbers arrive in order."""
        async with self._in_order:
            await self.bus.log.append(self.envelopes.envelope(event, cause=cause))
            self.envelopes.is_declared = True

    async def heartbeat(self) -> None:
        """Send heartbeats forever."""
        await send_heartbeats(self.bus.signals, self.envelopes, HEARTBEAT_S)

    def probe(self, what: str) -> None:
        """Something has just happened here; a fault may wait for it."""
        self.world.faults.passed(self, what)

    def end(self, exit_code: int) -> None:
        """End at once; nothing of this process runs any more."""
        if self.instance.alive:
            self.instance.kill()
            self.bus.disconnect()
            self.world.ended(self, exit_code)

    def terminate(self) -> None:
        """SIGTERM."""
        self.end(0)

    async def _run(self) -> None:
        await self._guarded(self.main)
        self.end(0)

    async def _guarded(self, coroutine: Callable[[], object]) -> None:
        try:
            await coroutine()  # type: ignore[misc]
        except FencedError as error:
            self.world.note(f"{self.incarnation} is fenced: {error}")
            # Another process is the master: a launcher that does not know it starts a master again.
            self.end(EXIT_AWAY if self.service is Service.MASTER else 0)
        except (TransientError, UserError, PermanentError, ProtocolError) as error:
            self.world.note(f"{self.incarnation} can't continue: {error}")
            self.end(exit_code(error))
        except Exception as error:  # A bug of the product or of the simulation: it ends the run, whatever it is.
            self.world.note(f"{self.incarnation} failed: {error!r}")
            self.world.loop.errors.append(error)
