"""The lanes of the broker: events, acknowledgements, taking tasks, leases."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from elasticdl.shared.bus import Delivery, StoredStates, TaskQueue
from elasticdl.shared.errors import TransientError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import MessageUnreadable
from elasticdl.shared.model.metric_states import pack_states
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.repeated_lines import RepeatedLines
from elasticdl.worker.core.commands import (
    AckTask,
    ExtendLease,
    LoadStates,
    NakTask,
    PublishEvent,
    PublishEvents,
    StoreStates,
    TakeTasks,
)
from elasticdl.worker.core.events import QueueEmpty, TasksDelivered
from elasticdl.worker.core.tasks.leased import LeasedTask

_log = get_logger()
PURPOSES = (Purpose.MERGE, Purpose.EVALUATE, Purpose.EXPORT, Purpose.TRAIN)
"""In this order: tasks that others wait for come before training, which always has more."""
STATES_READ_AT_ONCE = 64
"""Requests for stored metric states that wait for their answers at the same time."""
PURPOSES_OF_PREDICTION = (Purpose.EXPORT, Purpose.PREDICT)


class Deliveries:
    """The deliveries behind the leases that the core knows by number. Its coroutines run on the bus' loop."""

    def __init__(
        self,
        queue: TaskQueue,
        purposes: Sequence[Purpose] = PURPOSES,
        is_planned: Callable[[TaskRef], bool] = lambda _task: True,
    ) -> None:
        self._queue = queue
        self._is_planned = is_planned
        self._purposes = purposes
        self._numbers = itertools.count(1)
        self._deliveries: dict[int, Delivery] = {}

    async def take(self, wait_s: float, count: int) -> TasksDelivered | QueueEmpty:
        """The next tasks, waiting at most ``wait_s`` for one; see ``TaskQueue.take_several``."""
        deliveries = await self._take_planned(count)
        if not deliveries and wait_s > 0:
            await self._queue.wait(wait_s)
            deliveries = await self._take_planned(count)
        if not deliveries:
            return QueueEmpty()
        return TasksDelivered(leases=tuple(map(self._lease, deliveries)))

    def unreadable(self) -> list[MessageUnreadable]:
        """The messages that were removed from the queue since the last call."""
        found = list(self._queue.unreadable)
        self._queue.unreadable.clear()
        return found

    async def _take_planned(self, count: int) -> list[Delivery]:
        while deliveries := await self._queue.take_several(self._purposes, count):
            planned = []
            for delivery in deliveries:
                if self._is_planned(delivery.task.task):
                    planned.append(delivery)
                else:
                    await delivery.put_aside(f"the job has no task {delivery.task.task}")
            if planned:
                return planned
        return []

    def _lease(self, delivery: Delivery) -> LeasedTask:
        number = next(self._numbers)
        self._deliveries[number] = delivery
        return LeasedTask(
            number=number,
            message=delivery.task,
            attempt=delivery.attempt,
            reply=delivery.reply,
            is_first=delivery.attempt == 1 and not delivery.again,
        )

    async def ack(self, lease: LeasedTask) -> None:
        """Acknowledge a delivery; errors as ``Delivery.ack``."""
        await self._deliveries.pop(lease.number).ack()

    async def nak(self, lease: LeasedTask) -> None:
        """Return a delivery to the queue."""
        await self._deliveries.pop(lease.number).nak()

    async def extend(self, lease: LeasedTask) -> None:
        """Extend a lease, unless its delivery was answered meanwhile."""
        delivery = self._deliveries.get(lease.number)
        if delivery is not None:
            await delivery.extend()


class BrokerLane:
    """Executes the commands of the broker's lanes, on the bus' loop.

    Args:
        taken: is called with tasks as soon as they are taken; must return at once.
    """

    def __init__(
        self,
        deliveries: Deliveries,
        publisher: EventPublisher,
        states: StoredStates,
        taken: Callable[[Sequence[TaskRef]], None] = lambda _tasks: None,
    ) -> None:
        self._taken = taken
        self._deliveries = deliveries
        self._publisher = publisher
        self._states = states
        self._lines = RepeatedLines(_log)

    async def publish(self, command: PublishEvent) -> None:
        """Store an event; errors as ``EventPublisher.publish``."""
        await self._publisher.publish(command.event)

    async def publish_all(self, command: PublishEvents) -> None:
        """Store events; errors as ``EventPublisher.publish``."""
        await self._publisher.publish(*command.events)

    async def store_states(self, command: StoreStates) -> tuple[int, ...]:
        """Store metric states; errors as ``StoredStates.append``."""
        return await store_states(self._states, command)

    async def load_states(self, command: LoadStates) -> tuple[bytes, ...]:
        """Read stored metric states; errors as ``StoredStates.read``."""
        return await load_states(self._states, command)

    async def take(self, command: TakeTasks) -> TasksDelivered | QueueEmpty:
        """Take tasks; none while the broker is unavailable."""
        try:
            event = await self._deliveries.take(command.wait_s, command.count)
        except TransientError as error:
            _log.info("no task taken", reason=str(error))
            return QueueEmpty(is_unavailable=True)
        for message in self._deliveries.unreadable():
            self._lines.warning("task put aside", subject=message.subject, seq=message.seq, reason=message.reason)
            await self._publisher.publish(message)
        if isinstance(event, TasksDelivered):
            self._taken([lease.message.task for lease in event.leases])
        return event

    async def ack(self, command: AckTask) -> None:
        """Acknowledge a task. If that is lost it is delivered again, and found complete then."""
        try:
            await self._deliveries.ack(command.lease)
        except TransientError as error:
            _log.warning("task not acknowledged", task=str(command.lease.message.task), reason=str(error))

    async def nak(self, command: NakTask) -> None:
        """Return a task. If the broker is unavailable it is delivered again when the lease expires."""
        try:
            await self._deliveries.nak(command.lease)
        except TransientError as error:
            _log.warning("task not returned", task=str(command.lease.message.task), reason=str(error))

    async def extend(self, command: ExtendLease) -> None:
        """Extend a lease. The broker may be back before the lease expires."""
        try:
            await self._deliveries.extend(command.lease)
        except TransientError as error:
            _log.warning("lease not extended", task=str(command.lease.message.task), reason=str(error))


async def store_states(states: StoredStates, command: StoreStates) -> tuple[int, ...]:
    """Store metric states; returns the numbers of their parts. Errors as ``StoredStates.append``."""
    return tuple([await states.append(command.group, part) for part in pack_states(command.states)])


async def load_states(states: StoredStates, command: LoadStates) -> tuple[bytes, ...]:
    """Read stored metric states. Errors as ``StoredStates.read``.

    Those that are missing were removed because another worker has run this task, whose result then counts, or because
    the evaluation was given up. If the broker has lost some, the metrics lack some batches.
    """
    found: list[bytes | None] = []
    for start in range(0, len(command.numbers), STATES_READ_AT_ONCE):
        numbers = command.numbers[start : start + STATES_READ_AT_ONCE]
        found += await asyncio.gather(*map(states.read, numbers))
    parts = tuple(part for part in found if part is not None)
    if len(parts) < len(found):
        _log.warning("metric states are gone", parts=len(found), missing=len(found) - len(parts))
    return parts
