"""One client of a NATS server."""

from __future__ import annotations

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.large_values import SplitValues
from elasticdl.shared.bus.nats_bus.connection import Connection
from elasticdl.shared.bus.nats_bus.log import NatsEventLog
from elasticdl.shared.bus.nats_bus.register import NatsKeyValue
from elasticdl.shared.bus.nats_bus.signals import NatsSignals
from elasticdl.shared.bus.nats_bus.stored_states import NatsStoredStates
from elasticdl.shared.bus.nats_bus.streams import create_streams, remove_streams
from elasticdl.shared.bus.nats_bus.tasks import NatsTaskQueue
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.bus.stored_events import Payloads
from elasticdl.shared.names import JobId


class NatsBus:
    """See ``ports.Bus``; created by ``connect``. As a context manager, it closes at the end of the block."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        job = connection.job
        payloads = NatsKeyValue(connection, subjects.payloads_stream(job), subjects.payload, subjects.payload_name)
        self.log = NatsEventLog(connection, Payloads(payloads))
        self.tasks = NatsTaskQueue(connection)
        self.registers = NatsKeyValue(connection, subjects.model_stream(job), subjects.register, subjects.register_name)
        snapshots = NatsKeyValue(connection, subjects.core_stream(job), subjects.core, subjects.core_name)
        self.core_snapshots = SplitValues(snapshots, connection.settings.part_bytes_max)
        self.stored_states = NatsStoredStates(connection)
        self.signals = NatsSignals(connection)

    async def __aenter__(self) -> NatsBus:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def rebuild(self) -> None:
        """Remove the streams of the job and create empty ones."""
        await remove_streams(self._connection, self._connection.job)
        await create_streams(self._connection)

    async def close(self) -> None:
        """Close the connection; iterators end."""
        await self._connection.close()


async def connect(url: str, job: JobId, settings: BusSettings | None = None) -> NatsBus:
    """Connect and create the job's streams if needed; a lost connection is reestablished without limit.

    Args:
        url: ``nats://[user:password@]host:port``, several with commas between.

    Raises:
        UserError: no NATS server answers there, or one without JetStream.
        TransientError: no NATS server answers, and by the settings that is temporary.
        PermanentError: the server refuses to create the streams.
    """
    connection = await Connection.open(url, job, settings or BusSettings())
    try:
        await create_streams(connection)
    except BaseException:
        await connection.close()
        raise
    return NatsBus(connection)


async def check_server(url: str, job: JobId) -> int:
    """Check that a server with JetStream answers, creating nothing; returns the largest message (bytes) it accepts."""
    connection = await Connection.open(url, job, BusSettings())
    accepted = connection.client.max_payload
    await connection.close()
    return accepted
