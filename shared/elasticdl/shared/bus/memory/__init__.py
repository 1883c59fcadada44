"""The broker in memory: for tests and simulations; passes the same contract tests as the real one.

Values travel encoded, so whatever the codec refuses is refused here too. Leases expire by the broker's clock and are
looked at when somebody takes a task. Everything belongs to one asyncio loop.
"""

from elasticdl.shared.bus.memory.broker import MemoryBroker, MemoryBus

__all__ = ["MemoryBroker", "MemoryBus"]
