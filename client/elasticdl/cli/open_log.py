"""Reading the log of a job that runs, or that ran."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

from elasticdl.cli.launcher.spawner import Spawner, die_with_parent
from elasticdl.cli.run_directory import RunDirectory
from elasticdl.shared.bus import Bus, BusSettings, nats_bus
from elasticdl.shared.bus.server import NatsServer


@contextlib.asynccontextmanager
async def open_bus(run: RunDirectory) -> AsyncIterator[Bus]:
    """The job's bus: that of its launcher if one is alive, else a nats-server started on its files for the moment.

    Raises:
        UserError: the job, or its foreign broker, can't be reached.
        PermanentError: the server can't be started.
    """
    record = run.read()
    settings = BusSettings(run_directory=str(run.path))
    if run.is_locked() or not record.own_nats:
        async with _connected(record.nats_url, run, settings) as bus:
            yield bus
        return
    with run.lock():
        server = NatsServer(run.nats, token=secrets.token_hex(16), before_exec=die_with_parent())
        url = await asyncio.to_thread(Spawner().call, server.start)
        try:
            async with _connected(url, run, settings) as bus:
                yield bus
        finally:
            await asyncio.to_thread(server.stop)


@contextlib.asynccontextmanager
async def _connected(url: str, run: RunDirectory, settings: BusSettings) -> AsyncIterator[Bus]:
    bus = await nats_bus.connect(url, run.job, settings)
    try:
        yield bus
    finally:
        await bus.close()
