"""The task queue in memory."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.shared.bus.memory.client import Client
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages import codec
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.clock import Clock


@dataclass(slots=True, kw_only=True)
class _Queued:
    number: int
    lane: tuple[Purpose, bool]
    data: bytes
    attempt: int = 0
    lease_ends_s: float = 0.0


class Queue:
    """Waiting and delivered tasks; a lane is one subject: (purpose, dispatched again)."""

    def __init__(self, clock: Clock, lease_s: float) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._waiting: defaultdict[tuple[Purpose, bool], deque[_Queued]] = defaultdict(deque)
        self._delivered: dict[int, _Queued] = {}
        self._message_ids: set[str] = set()
        self.wakes = 0

    def add(self, task: TaskMessage, again: bool) -> None:
        """Queue a task, once per dispatch."""
        if task.message_id in self._message_ids:
            return
        self._message_ids.add(task.message_id)
        lane = (task.task.purpose, again)
        number = len(self._message_ids)
        self._waiting[lane].append(_Queued(number=number, lane=lane, data=codec.encode_task(task)))

    def take(self, lane: tuple[Purpose, bool]) -> _Queued | None:
        """The next waiting task, with a new lease."""
        self._expire()
        if not self._waiting[lane]:
            return None
        queued = self._waiting[lane].popleft()
        queued.attempt += 1
        self._delivered[queued.number] = queued
        self.extend(queued.number)
        return queued

    def extend(self, number: int) -> None:
        """Begin a new lease."""
        if number in self._delivered:
            self._delivered[number].lease_ends_s = self._clock.monotonic() + self._lease_s

    def ack(self, number: int) -> None:
        """Forget a task."""
        queued = self._delivered.pop(number, None)
        if queued is None:  # an older attempt finishes a task whose lease had run out
            for lane in self._waiting.values():
                for waiting in [each for each in lane if each.number == number]:
                    lane.remove(waiting)

    def give_back(self, number: int) -> None:
        """Have a delivered task wait again."""
        queued = self._delivered.pop(number, None)
        if queued is not None:
            self._waiting[queued.lane].append(queued)

    def purge(self) -> None:
        """Forget all tasks."""
        self._waiting.clear()
        self._delivered.clear()

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for number in [each.number for each in self._delivered.values() if each.lease_ends_s <= now]:
            self.give_back(number)


class MemoryDelivery:
    """See ``ports.Delivery``."""

    def __init__(self, queue: MemoryTaskQueue, queued: _Queued) -> None:
        self._queue = queue
        self._number = queued.number
        self.task = codec.decode_task(queued.data)
        self.attempt = queued.attempt
        self.reply = f"memory.{queued.number}.{queued.attempt}"

    async def ack(self) -> None:
        """It is done."""
        self._queue.state.ack(self._number)

    async def nak(self) -> None:
        """Give it back."""
        await self._queue.give_back(self.reply)

    async def extend(self) -> None:
        """Begin a new lease."""
        self._queue.state.extend(self._number)


class MemoryTaskQueue:
    """See ``ports.TaskQueue``."""

    def __init__(self, client: Client, state: Queue) -> None:
        self._client = client
        self.state = state
        self._seen_wakes = 0

    def _wake(self) -> None:
        self.state.wakes += 1
        self._client.bell.ring()

    async def publish(self, messages: Sequence[tuple[TaskMessage, bool]]) -> None:
        """Queue tasks and wake idle workers."""
        for task, again in messages:
            self.state.add(task, again)
        self._wake()

    async def take(self, purposes: Sequence[Purpose]) -> MemoryDelivery | None:
        """A task, if one is waiting."""
        self._seen_wakes = self.state.wakes
        for purpose in purposes:
            for again in (True, False):
                queued = self.state.take((purpose, again))
                if queued is not None:
                    return MemoryDelivery(self, queued)
        return None

    async def wait(self, timeout_s: float) -> None:
        """Until there may be a task."""

        async def woken() -> None:
            while self._seen_wakes == self.state.wakes and not self._client.closed:
                await self._client.bell.wait()

        try:
            await asyncio.wait_for(woken(), timeout_s)
        except TimeoutError:
            return

    async def give_back(self, reply: str) -> None:
        """Give back another client's delivery."""
        self.state.give_back(int(reply.split(".")[1]))
        self._wake()

    async def purge(self) -> None:
        """Forget all tasks."""
        self.state.purge()
