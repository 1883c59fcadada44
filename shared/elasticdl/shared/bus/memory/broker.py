"""What the clients of one job share, and one client of it."""

from __future__ import annotations

import asyncio

from elasticdl.shared.bus.memory.client import Bell, Client
from elasticdl.shared.bus.memory.log import MemoryEventLog, Records
from elasticdl.shared.bus.memory.register import MemoryKeyValue
from elasticdl.shared.bus.memory.signals import MemorySignals, OrderServer
from elasticdl.shared.bus.memory.tasks import MemoryTaskQueue, Queue
from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.job.spec import LEASE_S
from elasticdl.shared.names import PodName
from elasticdl.shared.process.clock import SystemClock


class MemoryBroker:
    """What the clients of one job share.

    Args:
        lease_s: seconds without a sign of life after which a task is delivered again.
    """

    def __init__(self, lease_s: float = LEASE_S) -> None:
        self._bell = Bell()
        self._records = Records()
        self._queue = Queue(SystemClock(), lease_s)
        self._entries: dict[str, KeyValueEntry] = {}
        self._cores: dict[str, KeyValueEntry] = {}
        self._beats: list[asyncio.Queue[bytes | None]] = []
        self._orders: dict[PodName, OrderServer] = {}

    def connect(self) -> MemoryBus:
        """A new client."""
        client = Client(self._bell)
        return MemoryBus(
            client=client,
            log=MemoryEventLog(client, self._records),
            tasks=MemoryTaskQueue(client, self._queue),
            registers=MemoryKeyValue(client, self._entries),
            core_snapshots=MemoryKeyValue(client, self._cores),
            signals=MemorySignals(client, self._beats, self._orders),
        )


class MemoryBus:
    """One client's connection to a ``MemoryBroker``."""

    def __init__(
        self,
        *,
        client: Client,
        log: MemoryEventLog,
        tasks: MemoryTaskQueue,
        registers: MemoryKeyValue,
        core_snapshots: MemoryKeyValue,
        signals: MemorySignals,
    ) -> None:
        self._client = client
        self.log = log
        self.tasks = tasks
        self.registers = registers
        self.core_snapshots = core_snapshots
        self.signals = signals

    async def close(self) -> None:
        """Hang up; iterators end, orders are no longer served."""
        self._client.closed = True
        self.signals.hang_up()
        self._client.bell.ring()
