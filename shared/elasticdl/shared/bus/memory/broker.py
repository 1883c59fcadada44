"""The broker that the clients of one job share, and one client of it."""

from __future__ import annotations

from elasticdl.shared.bus.large_values import SplitValues
from elasticdl.shared.bus.memory.log import MemoryEventLog, Records
from elasticdl.shared.bus.memory.register import Entries, MemoryKeyValue
from elasticdl.shared.bus.memory.signals import MemorySignals, Subscriptions
from elasticdl.shared.bus.memory.stored_states import MemoryStoredStates, StatesStream
from elasticdl.shared.bus.memory.tasks import MemoryTaskQueue, Queue
from elasticdl.shared.bus.memory.transport import Client, DirectTransport, Server, Transport
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.bus.stored_events import Payloads, StoredEvent, from_stored
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
