"""What a member of the ring tells the master, and learns from it: an event, and the register of the ring."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.bus.subjects import RING
from elasticdl.shared.errors import UnreadableError
from elasticdl.shared.messages.events import ReplicaDiffered, RingMemberReady
from elasticdl.shared.messages.registers import RingRegister, decode_ring
from elasticdl.shared.names import Incarnation
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.logs import get_logger
from elasticdl.worker.ring.ports import Generation

_log = get_logger()


class RingMembership:
    """See ``ring.ports.Membership``.

    Args:
        run: the run of the job; generations of other runs are ignored.
        tensors: names of the model's variables.
        failed: takes the error after which nothing is received any more.
    """

    def __init__(
        self,
        bus: Bus,
        loop: LoopThread,
        publisher: EventPublisher,
        *,
        run: Incarnation,
        tensors: Sequence[str],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._bus = bus
        self._loop = loop
        self._publisher = publisher
        self._run = run
        self._tensors = tensors
        self.address = self.node = ""
        """``host:port`` at which this worker accepts connections of other members, and the machine that it runs on."""
        self._failed = failed
        self._received: queue.SimpleQueue[Generation | None] = queue.SimpleQueue()
        """None: the end."""
        self._following: Future[None] | None = None

    def report_ready(self, *, left: int, step: int, has_model: bool, is_near: bool, reason: str) -> None:
        """Ask to be a member of the next generation. The event is published in the background."""
        event = RingMemberReady(
            address=self.address,
            left=left,
            step=step,
            has_model=has_model,
            is_near=is_near,
            reason=reason,
            node=self.node,
        )
        self._loop.spawn(self._publisher.publish(event))

    def report_difference(self, *, step: int, tensor: int) -> None:
        """Tell that the weights were not those of the other members. The event is published in the background."""
        names = self._tensors
        event = ReplicaDiffered(step=step, tensor=names[tensor] if tensor < len(names) else f"tensor {tensor}")
        _log.error("the weights of this worker differ from those of the others", step=step, tensor=event.tensor)
        self._loop.spawn(self._publisher.publish(event))

    def on_generation(self, receive: Callable[[Generation], None]) -> None:
        """Call ``receive`` with each generation, one after the other, in a thread of its own."""

        def deliver() -> None:
            try:
                while (generation := self._received.get()) is not None:
                    receive(generation)
            except BaseException as error:
                self._failed(error)

        threading.Thread(target=deliver, name="ring generations", daemon=True).start()
        self._following = self._loop.spawn_endless(self._follow(), self._failed)

    def close(self) -> None:
        """Receive no more generations, and end the thread."""
        if self._following is not None:
            self._following.cancel()
        self._received.put(None)

    async def _follow(self) -> None:
        latest = 0
        async for name, entry in self._bus.registers.watch():
            if name != RING:
                continue
            try:
                ring = decode_ring(entry.value)
            except UnreadableError as error:  # The master replaces it.
                _log.warning("a generation of the ring can't be read", reason=str(error))
                continue
            if ring.run == self._run and ring.number > latest:
                latest = ring.number
                self._received.put(_generation(ring))


def incarnation_of(generation: Generation) -> Incarnation:
    """The incarnation of ps-0 in a generation: every member can tell it without asking the leader."""
    named = f"{generation.members[0].incarnation}.{generation.number}".encode()
    return Incarnation(hashlib.sha256(named).hexdigest()[:12])


def _generation(ring: RingRegister) -> Generation:
    return Generation(number=ring.number, members=ring.members, reason=ring.reason)
