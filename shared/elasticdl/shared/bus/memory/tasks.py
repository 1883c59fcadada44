"""The task queue in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from elasticdl.shared.bus.memory.transport import Changes, Client
from elasticdl.shared.bus.reading import readable
from elasticdl.shared.bus.stored_events import shortened
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import MessageUnreadable
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.clock import Clock


@dataclass(slots=True, kw_only=True)
class _Queued:
    number: int
    subject: tuple[Purpose, bool]
    message_id: str
    data: bytes
    attempt: int = 0
    lease_ends_s: float = 0.0


@dataclass(slots=True)
class _Waiting:
    """The waiting tasks of one subject: those that are delivered again come before all others."""

    again: deque[_Queued] = field(default_factory=deque)
    first: deque[_Queued] = field(default_factory=deque)

    def pop(self) -> _Queued | None:
        lane = self.again or self.first
        return lane.popleft() if lane else None

    def remove(self, number: int) -> None:
        self.again = deque(queued for queued in self.again if queued.number > number)
        self.first = deque(queued for queued in self.first if queued.number > number)

    def __iter__(self) -> Iterator[_Queued]:
        yield from self.again
        yield from self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What a client gets of a task."""

    number: int
    attempt: int
    again: bool
    subject: Purpose
    data: bytes


class Queue:
    """Waiting and delivered tasks of all subjects; a subject is (purpose, dispatched again).

    Args:
        dedupe_window_s: seconds during which a repeated message id is recognised.
    """

    def __init__(self, clock: Clock, lease_s: float, dedupe_window_s: float) -> None:
        self.changes = Changes()
        self.last_number = 0
        """Number of the task that was queued last."""
        self._clock = clock
        self._lease_s = lease_s
        self._dedupe_window_s = dedupe_window_s
        self._waiting: dict[tuple[Purpose, bool], _Waiting] = {}
        self._delivered: dict[int, _Queued] = {}
        self._known: dict[str, float] = {}

    def publish(self, task: TaskMessage, again: bool) -> None:
        """Queue a task, unless the same message id was queued lately."""
        now_s = self._clock.monotonic()
        known_s = self._known.get(task.message_id)
        if known_s is not None and now_s - known_s < self._dedupe_window_s:
            return
        self._known[task.message_id] = now_s
        self.last_number += 1
        self._append((task.task.purpose, again), task.message_id, codec.encode_task(task))

    def publish_bytes(self, purpose: Purpose, data: bytes) -> None:
        """Queue any bytes, as any client of the broker can."""
        self.last_number += 1
        self._append((purpose, False), "", data)
        self.changes.notify()

    def _append(self, subject: tuple[Purpose, bool], message_id: str, data: bytes) -> None:
        queued = _Queued(number=self.last_number, subject=subject, message_id=message_id, data=data)
        self._waiting.setdefault(subject, _Waiting()).first.append(queued)

    def take_several(self, purposes: Sequence[Purpose], count: int) -> list[Delivered]:
        """Waiting tasks of the first subject that has any, under new leases: one, or ``count`` training tasks."""
        self._expire()
        for purpose, again in ((purpose, again) for purpose in purposes for again in (True, False)):
            waiting = self._waiting.get((purpose, again), _Waiting())
            wanted = count if purpose is Purpose.TRAIN else 1
            if taken := [queued for queued in (waiting.pop() for _ in range(wanted)) if queued is not None]:
                return [self._deliver(queued) for queued in taken]
        return []

    def _deliver(self, queued: _Queued) -> Delivered:
        queued.attempt += 1
        self._delivered[queued.number] = queued
        self.extend(queued.number)
        purpose, again = queued.subject
        return Delivered(number=queued.number, attempt=queued.attempt, again=again, subject=purpose, data=queued.data)

    def extend(self, number: int) -> None:
        """Begin a new lease."""
        if number in self._delivered:
            self._delivered[number].lease_ends_s = self._clock.monotonic() + self._lease_s

    def ack(self, number: int) -> None:
        """Forget a task; an earlier attempt may finish a task whose lease had run out."""
        if self._delivered.pop(number, None) is None:
            for waiting in self._waiting.values():
                for lane in (waiting.again, waiting.first):
                    for queued in [each for each in lane if each.number == number]:
                        lane.remove(queued)

    def give_back(self, number: int) -> None:
        """Deliver a task again, before those that were never delivered."""
        queued = self._delivered.pop(number, None)
        if queued is not None:
            self._waiting[queued.subject].again.append(queued)

    def purge(self, last: int) -> None:
        """Forget all tasks up to (and including) a number."""
        for waiting in self._waiting.values():
            waiting.remove(last)
        self._delivered = {number: queued for number, queued in self._delivered.items() if number > last}

    def restart(self) -> None:
        """The broker restarts: a work queue then forgets the message ids of tasks that it holds no more."""
        held = {queued.message_id for waiting in self._waiting.values() for queued in waiting}
        held.update(queued.message_id for queued in self._delivered.values())
        self._known = {message_id: known_s for message_id, known_s in self._known.items() if message_id in held}

    def _expire(self) -> None:
        now_s = self._clock.monotonic()
        for number in [each.number for each in self._delivered.values() if each.lease_ends_s <= now_s]:
            self.give_back(number)


class MemoryDelivery:
    """See ``ports.Delivery``."""

    def __init__(self, queue: MemoryTaskQueue, delivered: Delivered) -> None:
        self._queue = queue
        self._number = delivered.number
        self._data = delivered.data
        self.attempt = delivered.attempt
        self.again = delivered.again
        self.reply = f"memory.{delivered.number}.{delivered.attempt}"
        self._subject = delivered.subject

    @cached_property
    def task(self) -> TaskMessage:
        """The task. A delivery whose task raises ProtocolError is put aside at once."""
        return codec.decode_task(self._data)

    async def ack(self) -> None:
        """It is done; confirmed by the broker."""
        await self._queue.client.ask("ack", lambda: self._queue.state.ack(self._number))

    async def nak(self) -> None:
        """Give it back."""
        await self._queue.give_back(self.reply)

    async def extend(self) -> None:
        """Begin a new lease; not confirmed."""
        self._queue.client.transport.send("extend", lambda: self._queue.state.extend(self._number))

    async def put_aside(self, reason: str) -> None:
        """Remove it from the queue; confirmed by the broker."""
        await self.ack()
        again = ".again" if self.again else ""
        message = MessageUnreadable(
            subject=f"task.{self._subject.value}{again}", seq=self._number, reason=shortened(reason)
        )
        self._queue.unreadable.append(message)


class MemoryTaskQueue:
    """See ``ports.TaskQueue``."""

    def __init__(self, client: Client, state: Queue) -> None:
        self.client = client
        self.state = state
        self.unreadable: list[MessageUnreadable] = []
        self._woken: asyncio.Future[None] | None = None

    async def publish(self, messages: Sequence[tuple[TaskMessage, bool]]) -> None:
        """Queue tasks, all publications under way at the same time, and wake idle workers."""

        async def publish_one(task: TaskMessage, again: bool) -> None:
            await self.client.ask("publish", lambda: self.state.publish(task, again))

        await asyncio.gather(*(publish_one(task, again) for task, again in messages))
        self._wake()

    async def take(self, purposes: Sequence[Purpose]) -> MemoryDelivery | None:
        """A task, if one is waiting; one try."""
        delivered = await self.take_several(purposes, 1)
        return delivered[0] if delivered else None

    async def take_several(self, purposes: Sequence[Purpose], count: int) -> list[MemoryDelivery]:
        """Tasks, if any are waiting; one try."""
        self._listen()  # before looking: a task that is published from now on must end the next wait
        while delivered := await self.client.transport.request(
            "take", lambda: self.state.take_several(purposes, count)
        ):
            if found := await readable([MemoryDelivery(self, each) for each in delivered]):
                return found
        return []

    async def wait(self, timeout_s: float) -> None:
        """Until there may be a task."""
        await asyncio.wait([self._woken or self._listen()], timeout=timeout_s)

    async def give_back(self, reply: str) -> None:
        """Return another client's delivery to the queue."""
        number = int(reply.split(".")[1])
        await self.client.ask("nak", lambda: self.state.give_back(number))
        self._wake()

    async def last_seq(self) -> int:
        """Number of the task that was queued last."""
        return await self.client.ask("queue.last", lambda: self.state.last_number)

    async def purge(self, up_to: int) -> None:
        """Forget the tasks up to a number."""
        await self.client.ask("purge", lambda: self.state.purge(up_to))

    def _wake(self) -> None:
        self.client.transport.send("wake", self.state.changes.notify)

    def _listen(self) -> asyncio.Future[None]:
        if self._woken is None or self._woken.done():
            self._woken = self.state.changes.subscribe(self.client)
        return self._woken
