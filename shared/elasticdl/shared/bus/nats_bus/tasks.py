"""The task queue on a JetStream work-queue stream, with one durable consumer per subject."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property

import nats.errors
from nats.aio.msg import Msg

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import (
    CONSUMER_EXISTS,
    Connection,
    NoRespondersError,
    RefusedError,
)
from elasticdl.shared.bus.nats_bus.publications import Publication
from elasticdl.shared.bus.nats_bus.stored_message_inbox import StoredMessageInbox
from elasticdl.shared.bus.nats_bus.streams import NANOSECONDS
from elasticdl.shared.bus.reading import readable
from elasticdl.shared.bus.stored_events import shortened
from elasticdl.shared.errors import TransientError
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import MessageUnreadable
from elasticdl.shared.names import Purpose

_NOTHING_NOW = ("404", "408")
_EMPTY_S = 1.0
"""Seconds for which a consumer that had no task is asked last, unless a wake-up names it: wake-ups may be lost."""


class NatsDelivery:
    """See ``ports.Delivery``."""

    def __init__(self, queue: NatsTaskQueue, message: Msg, *, again: bool) -> None:
        self._queue = queue
        self._message = message
        self.again = again
        self.reply: str = short_reply(queue.stream, message.reply)
        # The short form begins with consumer and attempt. The client's own ``metadata`` costs ten times as much.
        is_short = not self.reply.startswith("$JS.")
        self.attempt: int = int(self.reply.split(".")[1]) if is_short else message.metadata.num_delivered

    @cached_property
    def task(self) -> TaskMessage:
        """The task. A delivery whose task raises ProtocolError is put aside at once."""
        return codec.decode_task(self._message.data)

    async def ack(self) -> None:
        """Acknowledge it; the server confirms it unless to find the task complete once more is cheap."""
        if self.task.task.purpose is Purpose.TRAIN:
            await self._queue.acknowledge(self.reply)
        else:
            await self._queue.answer(self.reply, b"+ACK")

    async def nak(self) -> None:
        """Return it."""
        await self._queue.give_back(self.reply)

    async def extend(self) -> None:
        """Renew the lease."""
        await self._queue.extend(self.reply)

    async def put_aside(self, reason: str) -> None:
        """Remove it from the queue; confirmed."""
        await self._queue.answer(self.reply, b"+TERM")
        subject = self._message.subject.partition(f".{self._queue.job}.")[2]
        seq = int(self._message.metadata.sequence.stream)
        self._queue.unreadable.append(MessageUnreadable(subject=subject, seq=seq, reason=shortened(reason)))


class NatsTaskQueue:
    """See ``ports.TaskQueue``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.job = connection.job
        self.stream = subjects.tasks_stream(connection.job)
        self.unreadable: list[MessageUnreadable] = []
        self._consumers: set[str] = set()
        self._empty_until_s: dict[str, float] = {}
        self._woken = asyncio.Event()
        self._inbox = StoredMessageInbox(connection, self._on_late)
        self._listening = False

    async def publish(self, messages: Sequence[tuple[TaskMessage, bool]]) -> None:
        """Queue tasks, all at once, and wake idle workers."""
        job = self._connection.job
        publications = [
            Publication(
                subject=subjects.task(job, task.task.purpose, again=again),
                payload=codec.encode_task(task),
                headers={"Nats-Msg-Id": task.message_id},
            )
            for task, again in messages
        ]
        await self._connection.store_all(self.stream, publications)
        await self._wake(*{_consumer(task.task.purpose, again) for task, again in messages})

    async def take(self, purposes: Sequence[Purpose]) -> NatsDelivery | None:
        """A task, if one is waiting."""
        deliveries = await self.take_several(purposes, 1)
        return deliveries[0] if deliveries else None

    async def take_several(self, purposes: Sequence[Purpose], count: int) -> list[NatsDelivery]:
        """Tasks, if any are waiting: every consumer is asked before the answer is "no tasks".

        A busy worker asks one or two consumers instead of all.
        """
        await self._listen()
        self._woken.clear()  # before looking: what is published from now on must end the next wait
        now_s = asyncio.get_running_loop().time()
        places = [(purpose, again) for purpose in purposes for again in (True, False)]
        places.sort(key=lambda place: self._empty_until_s.get(_consumer(*place), 0.0) > now_s)
        for purpose, again in places:
            wanted = count if purpose is Purpose.TRAIN else 1
            while messages := await self._next(purpose, again=again, count=wanted):
                self._empty_until_s.pop(_consumer(purpose, again), None)
                found = await readable([NatsDelivery(self, message, again=again) for message in messages])
                if found:
                    return found
            self._empty_until_s[_consumer(purpose, again)] = now_s + _EMPTY_S
        return []

    async def wait(self, timeout_s: float) -> None:
        """Until there may be a task."""
        await self._listen()
        try:
            await asyncio.wait_for(self._woken.wait(), timeout_s)
        except TimeoutError:
            return

    async def give_back(self, reply: str) -> None:
        """Return a delivery of another client."""
        await self.answer(reply, b"-NAK")
        await self._wake()

    async def last_seq(self) -> int:
        """Number of the task that was queued last."""
        return int((await self._connection.api(f"STREAM.INFO.{self.stream}", {}))["state"]["last_seq"])

    async def purge(self, up_to: int) -> None:
        """Remove the tasks up to a number."""
        await self._connection.api(f"STREAM.PURGE.{self.stream}", {"seq": up_to + 1})

    async def answer(self, reply: str, payload: bytes) -> None:
        """Acknowledge or return a delivery; repeated until the server confirms."""
        subject = reply_subject(self.stream, reply)
        await self._connection.retrying("acknowledgement", lambda: self._connection.ask(subject, payload))

    async def acknowledge(self, reply: str) -> None:
        """Acknowledge a delivery; not confirmed."""
        if not await self._publish_hint(reply_subject(self.stream, reply), b"+ACK"):
            raise TransientError("not connected to NATS")

    async def extend(self, reply: str) -> None:
        """Renew a lease; not confirmed."""
        await self._publish_hint(reply_subject(self.stream, reply), b"+WPI")

    async def _wake(self, *consumers: str) -> None:
        """Wake idle workers, and name the consumers that have tasks; none: unknown."""
        await self._publish_hint(subjects.wake(self._connection.job), " ".join(consumers).encode())

    async def _publish_hint(self, subject: str, payload: bytes) -> bool:
        """Send what may be lost: workers poll, and leases expire. Whether it was sent."""
        if not self._connection.client.is_connected:
            return False
        try:
            await self._connection.client.publish(subject, payload)
        except (nats.errors.Error, OSError):
            return False
        return True

    async def _listen(self) -> None:
        if self._listening:
            return
        self._listening = True

        async def wake(message: Msg) -> None:
            for consumer in message.data.decode().split() or list(self._empty_until_s):
                self._empty_until_s.pop(consumer, None)
            self._woken.set()

        await self._connection.client.subscribe(subjects.wake(self._connection.job), cb=wake)

    async def _next(self, purpose: Purpose, *, again: bool, count: int) -> list[Msg]:
        consumer = _consumer(purpose, again)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{consumer}"
        if consumer not in self._consumers:
            await self._create_consumer(consumer, subjects.task(self._connection.job, purpose, again=again))
        try:
            messages, status = await self._inbox.ask(subject, b'{"batch":%d,"no_wait":true}' % count, count)
        except NoRespondersError:
            self._consumers.discard(consumer)  # the server has lost it: create it at the next try
            raise
        if messages or status is None or status.code in _NOTHING_NOW:
            return messages
        raise TransientError(f"NATS returned no task: {status.description}")

    async def _on_late(self, message: Msg) -> None:
        """Return a task that arrived after its request was given up."""
        if "Status" not in (message.headers or {}):
            await self._publish_hint(message.reply, b"-NAK")

    async def _create_consumer(self, consumer: str, subject: str) -> None:
        settings = self._connection.settings
        config = {
            "name": consumer,
            "durable_name": consumer,
            "filter_subject": subject,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": int(settings.lease_s * NANOSECONDS),
            "max_deliver": -1,
            "max_ack_pending": settings.leases_max,
            "max_waiting": settings.leases_max,
        }
        request = {"stream_name": self.stream, "config": config, "action": "create"}
        try:
            await self._connection.api(f"CONSUMER.CREATE.{self.stream}.{consumer}.{subject}", request, once=True)
        except RefusedError as error:
            if error.error_code not in CONSUMER_EXISTS:
                raise
        self._consumers.add(consumer)


def short_reply(stream: str, subject: str) -> str:
    """What differs between the reply subjects of deliveries: the consumer, the attempt and the message's numbers."""
    parts = subject.removeprefix(_reply_prefix(stream)).split(".")
    return ".".join(parts[:4]) if len(parts) == 6 else subject


def reply_subject(stream: str, reply: str) -> str:
    """Inverse of ``short_reply``. The server does not read the last parts: a time, and how many messages wait."""
    return reply if reply.startswith("$JS.") else f"{_reply_prefix(stream)}{reply}.0.0"


def _reply_prefix(stream: str) -> str:
    return f"$JS.ACK.{stream}."


def _consumer(purpose: Purpose, again: bool) -> str:
    return subjects.task_consumer(purpose, again=again)
