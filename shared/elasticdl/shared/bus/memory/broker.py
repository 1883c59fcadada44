"""The broker that the clients of one job share, and one client of it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable

from elasticdl.shared.bus.large_values import SplitValues
from elasticdl.shared.bus.memory.log import MemoryEventLog, Records
from elasticdl.shared.bus.memory.signals import MemorySignals, Subscriptions
from elasticdl.shared.bus.memory.tasks import MemoryTaskQueue, Queue
from elasticdl.shared.bus.memory.transport import Changes, Client, DirectTransport, Server, Transport
from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.bus.retries import WrongLastSequenceError
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.bus.stored_events import Payloads, StoredEvent, from_stored
from elasticdl.shared.errors import FencedError
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.process.clock import Clock, SystemClock


class MemoryBroker:
    """The broker of one job, with the guarantees that the product relies on and no others.

    Args:
        settings: of the broker and of clients that bring none of their own.
    """

    def __init__(self, settings: BusSettings | None = None, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self.settings = settings or BusSettings()
        self.server = Server()
        self.records = Records(clock, self.settings.dedupe_window_s)
        self.queue = Queue(clock, self.settings.lease_s, self.settings.dedupe_window_s)
        self.registers = Entries()
        self.core_snapshots = Entries()
        self.payloads = Entries()
        self.states = StatesStream()
        self.subscriptions = Subscriptions()

    def envelope(self, event: StoredEvent) -> Envelope:
        """A stored event, for those who look at the broker itself."""
        parts = [entry.value for name in event.parts if (entry := self.payloads.present(name))]
        return from_stored(event.whole(parts))

    def connect(self, transport: Transport | None = None) -> MemoryBus:
        """A new client; ``transport`` is its way to the broker, a perfect one by default."""
        transport = transport or DirectTransport(self.server)
        return MemoryBus(self, Client(transport=transport, settings=self.settings))

    def rebuild(self) -> None:
        """Forget everything that is stored."""
        self.records.cut(0)
        self.queue.purge(self.queue.last_number)
        self.states.parts.clear()
        for entries in (self.registers, self.core_snapshots, self.payloads):
            entries.clear()

    def stop(self) -> None:
        """The broker dies; what it has acknowledged is on its disk."""
        self.server.stop()

    def start(self) -> None:
        """The broker is back, with the streams that it has on its disk."""
        self.queue.restart()
        self.server.start()


class MemoryBus:
    """One client's connection to a ``MemoryBroker``; see ``ports.Bus``."""

    def __init__(self, broker: MemoryBroker, client: Client) -> None:
        self.client = client
        self._broker = broker
        self.log = MemoryEventLog(client, broker.records, Payloads(MemoryKeyValue(client, broker.payloads, "payload")))
        self.tasks = MemoryTaskQueue(client, broker.queue)
        self.registers = MemoryKeyValue(client, broker.registers, "register")
        snapshots = MemoryKeyValue(client, broker.core_snapshots, "core")
        self.core_snapshots = SplitValues(snapshots, client.settings.part_bytes_max)
        self.stored_states = MemoryStoredStates(client, broker.states)
        self.signals = MemorySignals(client, broker.subscriptions)

    async def rebuild(self) -> None:
        """Forget everything that is stored of the job."""
        await self.client.ask("rebuild", self._broker.rebuild)

    async def close(self) -> None:
        """Hang up; iterators end, orders are no longer served."""
        self.client.closed = True
        self.disconnect()
        for stream in (self._broker.records, self._broker.queue, self._broker.registers, self._broker.core_snapshots):
            stream.changes.notify()

    def disconnect(self) -> None:
        """The broker notices that the client is gone, as when its process died."""
        self._broker.subscriptions.drop(self.client)


class StatesStream:
    """The stored parts by number, each with its group."""

    def __init__(self) -> None:
        self.parts: dict[int, tuple[str, bytes]] = {}
        self._last = 0

    def append(self, group: str, part: bytes) -> int:
        """Store a part; returns its number."""
        self._last += 1
        self.parts[self._last] = group, part
        return self._last

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove parts, whether they are there or not."""
        for number in numbers:
            self.parts.pop(number, None)

    def remove_group(self, group: str) -> None:
        """Remove all parts of a group."""
        self.remove([number for number, (of, _) in self.parts.items() if of == group])


class MemoryStoredStates:
    """See ``ports.StoredStates``."""

    def __init__(self, client: Client, stream: StatesStream) -> None:
        self._client = client
        self._stream = stream

    async def append(self, group: str, part: bytes) -> int:
        """Store a part."""
        return await self._client.ask("states", lambda: self._stream.append(group, part))

    async def read(self, number: int) -> bytes | None:
        """A part."""
        found = await self._client.ask("states.read", lambda: self._stream.parts.get(number))
        return found[1] if found else None

    async def remove(self, numbers: Iterable[int]) -> None:
        """Remove parts by number."""
        removed = list(numbers)
        await self._client.ask("states.remove", lambda: self._stream.remove(removed))

    async def remove_group(self, group: str) -> None:
        """Remove all parts of a group."""
        await self._client.ask("states.remove", lambda: self._stream.remove_group(group))


class Entries:
    """The stored values, each with those that it replaced."""

    def __init__(self) -> None:
        self.former: dict[str, list[KeyValueEntry]] = {}
        """All values of each name, the present one last."""
        self.changes = Changes()
        self._writers: dict[int, str] = {}
        self._seq = 0

    def present(self, name: str) -> KeyValueEntry | None:
        """The present value."""
        return self.former[name][-1] if self.former.get(name) else None

    def write(self, name: str, value: bytes, after: int, write_id: str) -> int:
        """Replace a value whose number the writer knows, or refuse."""
        self.check_last(name, after)
        self._seq += 1
        self._writers[self._seq] = write_id
        self.former.setdefault(name, []).append(KeyValueEntry(value=value, seq=self._seq))
        self.changes.notify()
        return self._seq

    def written_by(self, name: str, write_id: str) -> int:
        """The number of the present value if that write stored it; otherwise 0."""
        present = self.present(name)
        return present.seq if present and self._writers[present.seq] == write_id else 0

    def above(self, seq: int) -> tuple[str, KeyValueEntry] | None:
        """The oldest present value that is newer than a number."""
        fresh = [(values[-1].seq, name) for name, values in self.former.items() if values and values[-1].seq > seq]
        if not fresh:
            return None
        _, name = min(fresh)
        return name, self.former[name][-1]

    def remove_below(self, name: str, before: int) -> None:
        """Remove the values below a name that are older than an entry."""
        for each in [each for each in self.former if each.startswith(f"{name}.")]:
            if self.former[each][-1].seq < before:
                del self.former[each]

    def clear(self) -> None:
        """Lose all values."""
        self.former.clear()

    def cut(self, name: str, length: int) -> None:
        """Lose all values of a name but the first ``length``, as a disk that lost its last writes."""
        del self.former[name][length:]
        if not self.former[name]:
            del self.former[name]

    def check_last(self, name: str, after: int) -> None:
        """Refuse a writer that does not know the present value."""
        present = self.present(name)
        last = present.seq if present else 0
        if after != last:
            raise WrongLastSequenceError(f"it is at {last}, not at {after}")


class MemoryKeyValue:
    """See ``ports.KeyValue``."""

    def __init__(self, client: Client, entries: Entries, kind: str) -> None:
        self._client = client
        self._entries = entries
        self._kind = kind

    async def read(self, name: str) -> KeyValueEntry | None:
        """The present value."""
        return await self._client.ask(f"{self._kind}.read", lambda: self._entries.present(name))

    async def write(self, name: str, value: bytes, *, after: int) -> int:
        """Replace the value that the writer knows; a refusal of our own repetition is a success."""
        write_id = secrets.token_hex(12)
        try:
            return await self._client.ask(self._kind, lambda: self._entries.write(name, value, after, write_id))
        except WrongLastSequenceError as error:
            seq = await self._client.ask(f"{self._kind}.writer", lambda: self._entries.written_by(name, write_id))
            if seq:
                return seq
            raise FencedError(f"{self._kind} {name} was written by another process: {error}") from error

    async def watch(self) -> AsyncIterator[tuple[str, KeyValueEntry]]:
        """Present values, then changes forever."""
        seen = 0
        while not self._client.closed:
            while self._client.transport.connected and (fresh := self._entries.above(seen)) is not None:
                seen = fresh[1].seq
                yield fresh
            await self._entries.changes.wait(self._client, ready=self._entries.above(seen) is not None)

    async def remove_below(self, name: str, *, before: int) -> None:
        """Remove old values below a name."""
        await self._client.ask(f"{self._kind}.remove", lambda: self._entries.remove_below(name, before))
