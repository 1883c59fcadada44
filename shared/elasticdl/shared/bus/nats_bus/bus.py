"""One client of a real broker."""

from __future__ import annotations

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import Connection
from elasticdl.shared.bus.nats_bus.log import NatsEventLog
from elasticdl.shared.bus.nats_bus.register import NatsKeyValue
from elasticdl.shared.bus.nats_bus.signals import NatsSignals
from elasticdl.shared.bus.nats_bus.streams import create_streams
from elasticdl.shared.bus.nats_bus.tasks import NatsTaskQueue
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.names import JobId


class NatsBus:
    """See ``ports.Bus``; made by ``connect``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.log = NatsEventLog(connection)
        self.tasks = NatsTaskQueue(connection)
        job = connection.job
        self.registers = NatsKeyValue(connection, subjects.model_stream(job), subjects.register, subjects.register_name)
        self.core_snapshots = NatsKeyValue(connection, subjects.core_stream(job), subjects.core, subjects.core_name)
        self.signals = NatsSignals(connection)

    async def close(self) -> None:
        """Hang up; iterators end."""
        await self._connection.close()


async def connect(url: str, job: JobId, settings: BusSettings | None = None) -> NatsBus:
    """Connect and make sure that the job's streams exist; later losses of the connection are repaired for ever.

    Args:
        url: ``nats://[user:password@]host:port``, several with commas between.
        job: whose streams.
        settings: how patient to be.

    Raises:
        UserError: nobody answers there, or somebody without JetStream.
        TransientError: nobody answers there now, and the settings say that this is not final.
        PermanentError: the broker refuses to create the streams.
    """
    connection = await Connection.open(url, job, settings or BusSettings())
    try:
        await create_streams(connection)
    except BaseException:
        await connection.close()
        raise
    return NatsBus(connection)


async def check_server(url: str, job: JobId) -> None:
    """Find out whether a server with JetStream answers, and leave no trace there.

    Raises:
        UserError: as ``connect``.
    """
    connection = await Connection.open(url, job, BusSettings())
    await connection.close()
