"""The job's task queue for threads that block: the bus lives on its own asyncio loop."""

from __future__ import annotations

import structlog

from elasticdl.shared.bus import Delivery as BusDelivery
from elasticdl.shared.bus import TaskQueue
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.errors import TransientError
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.names import Purpose

_log = structlog.get_logger()
PURPOSES = (Purpose.MERGE, Purpose.EVALUATE, Purpose.EXPORT, Purpose.TRAIN)
"""In this order: what others wait for comes before training, which always has more."""


class QueuedTask:
    """A delivery of the bus; see ``ports.Delivery``."""

    def __init__(self, delivery: BusDelivery, loop: LoopThread) -> None:
        self._delivery = delivery
        self._loop = loop

    @property
    def message(self) -> TaskMessage:
        """The task."""
        return self._delivery.task

    @property
    def attempt(self) -> int:
        """Which delivery of this message it is, from 1."""
        return self._delivery.attempt

    @property
    def reply(self) -> str:
        """Where anybody may give the delivery back."""
        return self._delivery.reply

    def ack(self) -> None:
        """The task is done. With the broker away it will be delivered again, and found complete then."""
        try:
            self._loop.call(self._delivery.ack())
        except TransientError as error:
            _log.warning("task not acknowledged", task=str(self.message.task), reason=str(error))

    def nak(self) -> None:
        """Have it delivered again at once; with the broker away when the lease ends."""
        try:
            self._loop.call(self._delivery.nak())
        except TransientError as error:
            _log.warning("task not given back", task=str(self.message.task), reason=str(error))

    def extend(self) -> None:
        """Keep it for another lease."""
        self._loop.call(self._delivery.extend())


class Inbox:
    """Takes tasks off the queue; see ``ports.Tasks``.

    Args:
        queue: the bus' queue.
        loop: where it lives.
    """

    def __init__(self, queue: TaskQueue, loop: LoopThread) -> None:
        self._queue = queue
        self._loop = loop

    def take(self, wait_s: float) -> QueuedTask | None:
        """The next task, waiting at most ``wait_s`` for one; None also while the broker is away."""
        try:
            delivery = self._loop.call(self._take(wait_s))
        except TransientError as error:
            _log.info("no task taken", reason=str(error))
            return None
        return None if delivery is None else QueuedTask(delivery, self._loop)

    async def _take(self, wait_s: float) -> BusDelivery | None:
        delivery = await self._queue.take(PURPOSES)
        if delivery is None and wait_s > 0:
            await self._queue.wait(wait_s)
            delivery = await self._queue.take(PURPOSES)
        return delivery
