"""One process' client of the broker: the ``Bus`` port in the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from tests.sim.broker import Queued, Registers, WrongLastSequenceError
from tests.sim.client import Client, Hub, Probe, fail, settle
from tests.sim.loop import Life

from elasticdl.shared.bus.ports import KeyValueEntry, OrderHandler
from elasticdl.shared.bus.reading import record_at
from elasticdl.shared.bus.terms import Terms
from elasticdl.shared.errors import ElasticDLError, FencedError, PermanentError
from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.names import PodName, Purpose

ORDER_ANSWER_S = 5.0


class SimLog:
    """See ``ports.EventLog``."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._log = client.hub.broker.log

    async def append(self, envelope: Envelope) -> int:
        what = type(envelope.event).__name__
        return int(await self._client.ask(what, lambda: self._heard(self._log.append(envelope))))

    async def append_next(self, envelope: Envelope, *, after: int) -> int:
        what = type(envelope.event).__name__
        try:
            return int(await self._client.ask(what, lambda: self._heard(self._log.append_next(envelope, after))))
        except WrongLastSequenceError as error:
            there = await record_at(self, after + 1)
            if there is not None and there.envelope.id == envelope.id:
                return there.seq
            raise FencedError(f"the log does not end at {after} any more") from error

    async def append_fenced(self, envelope: Envelope, *, after: int) -> int:
        try:
            what = type(envelope.event).__name__
            return int(await self._client.ask(what, lambda: self._heard(self._log.append(envelope, after))))
        except WrongLastSequenceError as error:
            last = await self.last_fenced()
            if last is not None and last.envelope.id == envelope.id:
                return last.seq
            raise FencedError(f"another master has decided something, this one knew of {after}") from error

    def _heard(self, seq: int) -> int:
        """Have readers look; with the number of what is new for them."""
        self._client.hub.ring(self._client.hub.readers)
        return seq

    async def read(self, after: int) -> AsyncIterator[LogRecord]:
        hub = self._client.hub
        records = self._log.records
        while True:
            while after < len(records) and hub.reaches(self._client.name):
                after += 1
                yield records[after - 1]
            future: asyncio.Future[None] = hub.loop.create_future()
            if after < len(records):
                hub.tell(self._client.name, future)
            else:
                hub.readers.append((self._client.name, future))
            await future

    async def last_seq(self) -> int:
        return int(await self._client.ask("last_seq", lambda: len(self._log.records)))

    async def last_fenced(self) -> LogRecord | None:
        def last() -> LogRecord | None:
            return self._log.records[self._log.last_fenced - 1] if self._log.last_fenced else None

        answer: LogRecord | None = await self._client.ask("last_fenced", last)
        return answer


class SimDelivery:
    """See ``ports.Delivery``."""

    def __init__(self, queue: SimTasks, queued: Queued) -> None:
        self._queue = queue
        self._number = queued.number
        self.task = queued.task
        self.attempt = queued.attempt
        self.reply = f"{queued.number}.{queued.attempt}"

    async def ack(self) -> None:
        await self._queue.client.ask("ack", lambda: self._queue.state.acknowledge(self._number))

    async def nak(self) -> None:
        await self._queue.give_back(self.reply)

    async def extend(self) -> None:
        self.say_extend()

    def say_extend(self) -> None:
        """``extend`` for those who do not await."""
        self._queue.say("extend", lambda: self._queue.state.extend(self._number))


class SimTasks:
    """See ``ports.TaskQueue``."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.state = client.hub.broker.tasks
        self._unseen: asyncio.Future[None] | None = None

    async def publish(self, messages: Sequence[tuple[TaskMessage, bool]]) -> None:
        await asyncio.gather(*(self._publish(task, again) for task, again in messages))
        self.say("wake", lambda: None)

    async def _publish(self, task: TaskMessage, again: bool) -> None:
        await self.client.ask("publish", lambda: self.state.publish(task, again))

    async def take(self, purposes: Sequence[Purpose]) -> SimDelivery | None:
        hub = self.client.hub
        if self._unseen is None or self._unseen.done():
            self._unseen = hub.loop.create_future()
            hub.idle.append((self.client.name, self._unseen))
        queued = await self.client.try_once("take", lambda: self._take(tuple(purposes)))
        return None if queued is None else SimDelivery(self, *queued)

    def _take(self, purposes: tuple[Purpose, ...]) -> tuple[Queued] | None:
        queued = self.state.take(purposes)
        if queued is None:
            return None
        seen = Queued(number=queued.number, lane=queued.lane, task=queued.task, attempt=queued.attempt)
        return (seen,)

    async def wait(self, timeout_s: float) -> None:
        if self._unseen is None:
            return
        future = self._unseen
        self.client.hub.loop.later(timeout_s, settle, future, None)
        await asyncio.wait([future])

    async def give_back(self, reply: str) -> None:
        number = int(reply.split(".")[0])
        await self.client.ask("nak", lambda: self.state.give_back(number))
        self.say("wake", lambda: None)

    async def purge(self) -> None:
        last = await self.client.ask("purge.last", lambda: self.state.count)
        await self.client.ask("purge", lambda: self.state.purge(last))

    def say(self, what: str, operation: Callable[[], None]) -> None:
        """Fire and forget."""
        hub = self.client.hub

        def arrive() -> None:
            if hub.broker.up:
                operation()
                if what == "wake":
                    hub.ring(hub.idle)

        if hub.reaches(self.client.name) and hub.network.fate() == "ok":
            hub.loop.later(hub.network.latency_s(), arrive)


class SimKeyValue:
    """See ``ports.KeyValue``."""

    def __init__(self, client: Client, registers: Registers, probe: str) -> None:
        self._client = client
        self._registers = registers
        self._probe = probe
        self._writes = 0

    async def read(self, name: str) -> KeyValueEntry | None:
        entry: KeyValueEntry | None = await self._client.ask("register.read", lambda: self._registers.entries.get(name))
        return entry

    async def write(self, name: str, value: bytes, *, after: int) -> int:
        self._writes += 1
        write_id = f"{self._client.life.name}.{self._writes}"
        try:
            seq = await self._client.ask(self._probe, lambda: self._write(name, value, after, write_id))
        except WrongLastSequenceError as error:
            raise FencedError(f"register {name} was written by somebody else") from error
        return int(seq)

    def _write(self, name: str, value: bytes, after: int, write_id: str) -> int:
        seq = self._registers.write(name, value, after, write_id)
        self._client.hub.ring(self._client.hub.readers)
        return seq

    async def watch(self) -> AsyncIterator[tuple[str, KeyValueEntry]]:
        hub, seen = self._client.hub, 0
        while True:
            while hub.reaches(self._client.name):
                fresh = [(e.seq, name) for name, e in self._registers.entries.items() if e.seq > seen]
                if not fresh:
                    break
                seen, name = min(fresh)
                yield name, self._registers.entries[name]
            future: asyncio.Future[None] = hub.loop.create_future()
            if any(entry.seq > seen for entry in self._registers.entries.values()):
                hub.tell(self._client.name, future)
            else:
                hub.readers.append((self._client.name, future))
            await future


class SimSignals:
    """See ``ports.Signals``."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._handler: OrderHandler | None = None
        self._terms = Terms()

    async def beat(self, beat: Beat) -> None:
        hub = self._client.hub
        if not hub.reaches(self._client.name):
            return
        for listener, queue in hub.beats:
            if hub.reaches(listener.name):
                hub.loop.later(2 * hub.network.latency_s(), queue.put_nowait, beat)

    async def beats(self) -> AsyncIterator[Beat]:
        queue: asyncio.Queue[Beat] = asyncio.Queue()
        hub = self._client.hub
        hub.beats = [each for each in hub.beats if each[0].life.alive]
        hub.beats.append((self._client, queue))
        while True:
            yield await queue.get()

    async def order(self, pod: PodName, command: Command, cause: str, *, term: int = 0) -> None:
        hub = self._client.hub
        answer: asyncio.Future[Any] = hub.loop.create_future()

        def arrive() -> None:
            listeners = [each for each in hub.listeners.get(pod, []) if each.is_there()]
            for listener in listeners:
                listener._client.life.start(listener.serve(command, cause, term, answer))
            if not listeners:
                fail(answer)

        if hub.reaches(self._client.name) and hub.network.fate() == "ok":
            hub.loop.later(2 * hub.network.latency_s(), arrive)
        hub.loop.later(ORDER_ANSWER_S, fail, answer)
        refusal = await answer
        if refusal:
            raise PermanentError(refusal)

    async def serve_orders(self, pod: PodName, handler: OrderHandler) -> None:
        self._handler = handler
        self._client.hub.listeners.setdefault(pod, []).append(self)

    def is_there(self) -> bool:
        """Whether an order arrives."""
        return self._client.life.alive and self._client.hub.reaches(self._client.name)

    async def serve(self, command: Command, cause: str, term: int, answer: asyncio.Future[Any]) -> None:
        """Run an order in the listener's process and answer it."""
        hub, refusal = self._client.hub, ""
        if self._handler is None:
            return
        try:
            self._terms.admit(term)
            hub.obeyed.append((self._client.life.name, term))
            await self._handler(command, cause)
        except ElasticDLError as error:
            refusal = str(error) or "refused"
        if self.is_there() and hub.network.fate() == "ok":
            hub.loop.later(2 * hub.network.latency_s(), settle, answer, refusal)


class SimBus:
    """See ``ports.Bus``."""

    def __init__(self, hub: Hub, name: str, life: Life, probe: Probe) -> None:
        client = Client(hub, name, life, probe)
        self.log = SimLog(client)
        self.tasks = SimTasks(client)
        self.registers = SimKeyValue(client, hub.broker.registers, "register")
        self.core_snapshots = SimKeyValue(client, hub.broker.cores, "core")
        self.signals = SimSignals(client)

    async def close(self) -> None:
        """Hang up."""
