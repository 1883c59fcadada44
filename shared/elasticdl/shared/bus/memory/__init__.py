"""The broker in memory: for tests and simulations. It passes the same contract tests as NATS.

Values travel encoded, so whatever the codec refuses is refused here, too. Leases expire by the broker's clock and are
checked when a worker takes a task. A client reaches the broker through a ``Transport``, where the simulation injects
faults. Everything belongs to one asyncio loop.
"""

from elasticdl.shared.bus.memory.broker import MemoryBroker, MemoryBus
from elasticdl.shared.bus.memory.transport import Client, DirectTransport, Transport

__all__ = ["Client", "DirectTransport", "MemoryBroker", "MemoryBus", "Transport"]
