"""A NATS server that accepts connections, and is too busy to answer at once."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest

from elasticdl.shared.bus import BusSettings, nats_bus
from elasticdl.shared.errors import TransientError
from elasticdl.shared.names import JobId

REQUEST = re.compile(rb"PUB \$JS\.API\.INFO [^\r]*\r\n\r\n")
SETTINGS = BusSettings(answer_s=0.2, connect_s=5.0, retry_pause_s=0.05, absence_is_final=False)


@contextlib.asynccontextmanager
async def losing(url: str, requests: int) -> AsyncIterator[str]:
    """The URL of a proxy before a server; the first requests for JetStream's state get lost."""
    host, port = url.rpartition("/")[2].rpartition("@")[2].split(":")
    lost = 0
    tasks: set[asyncio.Task[None]] = set()
    writers: set[asyncio.StreamWriter] = set()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, loses: bool) -> None:
        nonlocal lost
        while data := await source.read(1 << 16):
            if loses and lost < requests:
                data, found = REQUEST.subn(b"", data, count=requests - lost)
                lost += found
            sink.write(data)
            await sink.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(host, int(port))
        writers.update((writer, to_server))
        for source, sink, loses in ((reader, to_server, True), (from_server, writer, False)):
            tasks.add(asyncio.create_task(pump(source, sink, loses=loses)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        assert lost > 0


async def test_a_client_waits_for_a_busy_server(nats_url: str, job: JobId) -> None:
    async with losing(nats_url, requests=2) as url:
        bus = await nats_bus.connect(url, job, SETTINGS)
        assert await bus.log.last_seq() == 0
        await bus.close()


async def test_a_client_does_not_wait_for_ever(nats_url: str, job: JobId) -> None:
    settings = BusSettings(answer_s=0.05, connect_s=0.2, retry_pause_s=0.05, absence_is_final=False)
    async with losing(nats_url, requests=1000) as url:
        with pytest.raises(TransientError, match=r"JetStream failed for 0\.2 s"):
            await nats_bus.connect(url, job, settings)
