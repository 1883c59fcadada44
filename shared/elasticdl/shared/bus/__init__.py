"""The broker as ports: event log, task queue, registers and signals, in memory and on NATS JetStream.

May import the codec, the subjects and, in ``nats_bus`` alone, nats. Must not know what events mean or decide anything.
"""

from elasticdl.shared.bus.ports import (
    Bus,
    Delivery,
    EventLog,
    KeyValue,
    KeyValueEntry,
    OrderHandler,
    Signals,
    StopServing,
    StoredStates,
    TaskQueue,
)
from elasticdl.shared.bus.settings import BusSettings

__all__ = [
    "Bus",
    "BusSettings",
    "Delivery",
    "EventLog",
    "KeyValue",
    "KeyValueEntry",
    "OrderHandler",
    "Signals",
    "StopServing",
    "StoredStates",
    "TaskQueue",
]
